"""A made-up experiment with everything that a report can show: two strategies on one to eight ranks, two batch sizes, three repeats."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from paceline.api.services.experiments.report.subject import ReportSubject
from paceline.cluster.experiments.findings import (
    Analysis,
    Configuration,
    Convergence,
    CostCheck,
    Estimate,
    FigureDifference,
    Fit,
    Outlier,
    Prediction,
    Sentence,
    Series,
)

AXES = ["parallelism.strategy", "world_size", "training.global_batch_size"]
PARTS = {"data": 0.04, "forward": 0.26, "backward": 0.48, "communication": 0.0, "optimizer": 0.12, "other": 0.02}
ASSUMPTIONS = "H100 SXM with NVLink in a node and 8 links of 400 Gb/s between nodes; overlap as measured here."


def subject(*, name: str = "ddp-vs-fsdp", search: bool = False, **changes: Any) -> ReportSubject:
    spec: dict[str, Any] = {
        "version": 1,
        "name": name,
        "grid": {"parallelism.strategy": ["ddp", "fsdp"]},
        "world_sizes": [1, 2, 4, 8],
        "repeats": 3,
    }
    if search:
        spec["search"] = {"kind": "random", "trials": 20}
    return ReportSubject(
        experiment_id="01JDK3Z0W8QHX4",
        name=name,
        project="vision",
        description="Does FSDP cost speed on a small ResNet, and what does it save?",
        made_at=datetime(2026, 11, 25, 3, 4, tzinfo=UTC),
        complete=True,
        seconds=0.41,
        spec=spec,
        analysis=analysis(**changes),
    )


def estimate(value: float, spread: float = 0.02, count: int = 3) -> Estimate:
    return Estimate(value=value, low=value * (1 - spread), high=value * (1 + spread * 1.3), count=count)


def configurations() -> Iterator[Configuration]:
    index = 0
    for batch in (32, 64):
        for strategy, world_size in [("single", 1), *((name, ranks) for name in ("ddp", "fsdp") for ranks in (2, 4, 8))]:
            yield configuration(index, strategy, world_size, batch)
            index += 1
    yield Configuration(
        index=index,
        label="fsdp, 3 ranks, batch 64",
        values={"parallelism.strategy": "fsdp", "world_size": 3, "training.global_batch_size": 64},
        world_size=3,
        strategy="fsdp",
        baseline=False,
        trials=[],
        completed=0,
        refusal="global_batch_size=64 does not divide by 3 ranks; use 63 or 66",
    )


def configuration(index: int, strategy: str, world_size: int, batch: int) -> Configuration:
    loss_of_time = {"single": 0.0, "ddp": 0.05, "fsdp": 0.11}[strategy] * math.log2(world_size) * (1.25 if batch == 32 else 1)
    compute = 0.092 * batch / 32 / world_size
    parts = {name: share / 0.92 * compute for name, share in PARTS.items()} | {"communication": compute * loss_of_time * 1.6}
    step = sum(parts.values())
    efficiency = 0.092 * batch / 32 / step / world_size
    memory = (1.9e9 if strategy == "fsdp" else 3.1e9) / (world_size if strategy == "fsdp" else 1) + 4e7 * batch
    return Configuration(
        index=index,
        label=f"{strategy}, {world_size} rank{'s' * (world_size > 1)}, batch {batch}",
        values={"parallelism.strategy": strategy, "world_size": world_size, "training.global_batch_size": batch},
        world_size=world_size,
        strategy=strategy,
        baseline=strategy == "single",
        trials=[3 * index, 3 * index + 1, 3 * index + 2],
        completed=3,
        step_seconds=estimate(step),
        samples_per_second=estimate(batch / step),
        speedup=estimate(efficiency * world_size),
        efficiency=estimate(efficiency),
        peak_memory_bytes=estimate(memory, 0.005),
        exposed_communication=estimate(parts["communication"] / step),
        bytes_per_step=estimate(4.4e7 * (world_size - 1) / world_size) if world_size > 1 else None,
        goodput=estimate(0.93, 0.01),
        slot_hours=estimate(0.03 * world_size),
        metric=estimate(0.42 + 0.01 * loss_of_time),
        parts=parts,
        pareto=(strategy, world_size) in {("ddp", 8), ("fsdp", 8), ("fsdp", 4)},
        predicted_step_seconds=step * 1.04,
    )


def losses(index: int, trial: int, steps: int = 240) -> Series:
    values: list[float | None] = [
        2.3 * math.exp(-step / (60 + 4 * index)) + 0.4 + 0.05 * math.sin(step * 1.7 + index) for step in range(1, steps + 1)
    ]
    values[40] = None
    numbers = list(range(1, steps + 1))
    return Series(
        configuration=index,
        trial=trial,
        steps=numbers,
        samples=[64 * step for step in numbers],
        seconds=[0.05 * step for step in numbers],
        losses=values,
    )


def analysis(**changes: Any) -> Analysis:
    found = list(configurations())
    by_kind = {(each.strategy, each.world_size, each.values["training.global_batch_size"]): each.index for each in found}
    ddp8, fsdp8, single = by_kind["ddp", 8, 64], by_kind["fsdp", 8, 64], by_kind["single", 1, 64]
    whole = Analysis(
        trials=43,
        completed=42,
        failed=0,
        refused=1,
        axes=AXES,
        configurations=found,
        best=fsdp8,
        best_trial=12,
        slot_hours=5.25,
        energy_joules=7.2e6,
        differences=[
            FigureDifference(first=ddp8, second=fsdp8, path=AXES[0], figure="samples_per_second", ratio=0.86, p_value=0.012, is_difference=True,
                       text="fsdp is 14 % slower than ddp"),
            FigureDifference(first=ddp8, second=fsdp8, path=AXES[0], figure="metric", ratio=1.001, p_value=0.61, is_difference=False,
                       text="their losses cannot be told apart"),
        ],
        outliers=[Outlier(trial=17, job_id="01JDK4", figure="step_seconds", value=0.093, median=0.062, text="trial 17 took 1.5 times as long as its repeats")],
        fits=[Fit(law="amdahl", series="ddp, batch 64", parameters={"serial_share": 0.021}, ranks=[1, 2, 4, 8], measured=[0.18, 0.095, 0.05, 0.027],
                  fitted=[0.18, 0.094, 0.05, 0.028], worst_residual=0.031, text="2.1 % of the work does not speed up")],
        convergence=[Convergence(configuration=fsdp8, reference=single, at_samples=15360, loss=0.4312, reference_loss=0.4312, at_seconds=12.0,
                                 loss_at_time=0.43, reference_loss_at_time=1.21, same=True, text="the same loss at equal samples")],
        cost_checks=[CostCheck(configuration=each.index, measured_seconds=each.step_seconds.value, predicted_seconds=each.step_seconds.value * 1.04, error=0.04)
                     for each in found if each.step_seconds],
        predictions=[Prediction(configuration=index, ranks=ranks, step_seconds=0.1 / ranks, samples_per_second=640.0 * ranks, efficiency=start - slope * math.log2(ranks / 8),
                                peak_memory_bytes=1e9, assumptions=ASSUMPTIONS)
                     for index, start, slope in ((ddp8, 0.78, 0.03), (fsdp8, 0.63, 0.05)) for ranks in (16, 64, 256, 1024)],
        sentences=[
            Sentence(kind="recommendation", text="Take fsdp on 8 ranks with batch 64: it costs 14 % of speed here and saves 61 % of memory, so that models above "
                     "1.3 B parameters fit.", configurations=[fsdp8]),
            Sentence(kind="finding", text="ddp on 8 ranks is the fastest: 2,390 samples per second, 81 % of ideal."),
            Sentence(kind="finding", text="Both reach the same loss at equal samples, to rounding."),
            Sentence(kind="doubt", text="All ranks were on one machine: nothing is known of a network."),
            Sentence(kind="doubt", text="Trial 17 took 1.5 times as long as its repeats; the medians do not depend on it."),
        ],
        series=[losses(each.index, 3 * each.index) for each in found if each.completed],
    )  # fmt: skip
    return whole.model_copy(update=changes)
