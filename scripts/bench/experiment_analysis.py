"""The analysis of a large experiment, without a coordinator: 1,000 trials with 1,000 steps each.

analyze_seconds               `analyze` from facts in memory to an analysis, and its JSON
analyze_cpu_seconds           the same in CPU time: what it takes on a machine that does nothing else
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import islice, product

from paceline.cluster.experiments.analysis.analyze import analyze
from paceline.cluster.experiments.facts import StepSeries, TrialFacts
from paceline.cluster.experiments.findings import Analysis
from paceline.cluster.experiments.spec import ExperimentSpec
from scripts.bench.figures import Figure, run, summarize

RUNS, TRIALS, STEPS, REPEATS = 5, 1_000, 1_000, 4
STRATEGIES, BATCHES, RATES = ("ddp", "fsdp"), (16, 32, 64, 128, 256), (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
WORLD_SIZES = (2, 4, 8, 16)
SPEC = ExperimentSpec(
    name="large",
    job={},
    grid={"parallelism.strategy": [*STRATEGIES], "training.global_batch_size": [*BATCHES], "optimizer.lr": [*RATES]},
    world_sizes=[*WORLD_SIZES],
    baseline=True,
    repeats=REPEATS,
    vary_seed=True,
)


def measure() -> list[Figure]:
    trials = list(made_up_trials())
    analyses = [timed_analysis(trials) for _ in range(RUNS)]
    found = analyses[0][2]
    reference = f"{len(trials)} trials of {STEPS} steps, {len(found.configurations)} configurations; goal: 2 s"
    return [
        summarize("analyze_seconds", "s", [wall for wall, _, _ in analyses], reference),
        summarize("analyze_cpu_seconds", "s", [cpu for _, cpu, _ in analyses], reference),
    ]


def timed_analysis(trials: list[TrialFacts]) -> tuple[float, float, Analysis]:
    """Analyze the trials; return seconds on the clock, seconds of CPU, and the analysis."""
    wall, cpu = time.perf_counter(), time.process_time()
    analysis = analyze(SPEC, trials)
    analysis.model_dump_json()
    return time.perf_counter() - wall, time.process_time() - cpu, analysis


def made_up_trials() -> Iterator[TrialFacts]:
    """Yield the trials of the whole grid: noisy steps, more expensive with more ranks, and losses that fall."""
    draw = random.Random(1)
    plans = [("single", 1), *product(STRATEGIES, WORLD_SIZES)]
    combinations = product(BATCHES, RATES, plans, range(REPEATS))
    for index, (batch, rate, (strategy, ranks), repeat) in enumerate(islice(combinations, TRIALS)):
        values = {"parallelism.strategy": strategy, "training.global_batch_size": batch, "optimizer.lr": rate, "world_size": ranks}
        seconds = batch / 100 * (0.05 + 0.95 / ranks) * (1.1 if strategy == "fsdp" else 1) * draw.gauss(1, 0.02)
        losses = [2 / (1 + rate * 1e3 * step / STEPS) + draw.gauss(0, 0.02) for step in range(STEPS)]
        yield TrialFacts(
            index=index,
            values=values,
            repeat=repeat,
            baseline=ranks == 1,
            state="completed",
            world_size=ranks,
            strategy=strategy,
            series=StepSeries(
                steps=list(range(1, STEPS + 1)),
                seconds=[seconds] * STEPS,
                losses=losses,
                samples=[batch * step for step in range(1, STEPS + 1)],
                times=[seconds * step for step in range(1, STEPS + 1)],
            ),
            step_seconds=seconds,
            samples_per_second=batch / seconds,
            tokens_per_second=batch / seconds * 128,
            parts={"forward": seconds * 0.3, "backward": seconds * 0.5, "communication": seconds * 0.2 * (1 - 1 / ranks)},
            exposed_communication=0.2 * (1 - 1 / ranks),
            bytes_per_step=1e7 * 2 * (ranks - 1) / ranks,
            peak_memory_bytes=(1e9 + 1e6 * batch) * (0.4 if strategy == "fsdp" else 1) * draw.gauss(1, 0.001),
            goodput=0.9,
            slot_hours=seconds * STEPS * ranks / 3600,
            metric=losses[-1],
        )


if __name__ == "__main__":
    run(measure, __doc__)
