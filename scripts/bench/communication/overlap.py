"""How much of the exchange of gradients hides behind backward, on links of several speeds, and what that is worth.

The same step of the same model, on hosts of their own: with gradients exchanged within the last backward, and after it (`early_exchange`), in turns. DDP
(`reproducible: false`) is beside them, in torch's buckets, one of which holds nearly all of this model, in eight, and in those that it finds best by itself.
"""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

import torch

from paceline.distributed import env
from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.parallelism import mesh
from paceline.parallelism.apply import parallelize
from paceline.parallelism.communication.reducers import BackendReducer
from paceline.parallelism.data_parallel.reproducible import Reproducible
from paceline.parallelism.plan import Coordinates
from paceline.training.elastic import first_assignment
from paceline.training.gradient_sums import FixedSums, gradient_sums
from paceline.training.link import RankPlace
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import StepReport, new_state
from paceline.training.steps.step import LocalStepRunner
from scripts.bench.communication.hosts import run_on_hosts, shaped_hosts
from scripts.bench.figures import Figure, run_shortened, summarize
from scripts.bench.reproducible import NobodyAsks

MODEL = {"kind": "gpt", "layers": 8, "heads": 8, "dim": 256, "context": 128}
GLOBAL_BATCH = 16
#: MiB of DDP's buckets, by kind; None: torch's own.
BUCKETS_MB: dict[str, float | None] = {"ddp": None, "ddp_in_eight": 3.0}
#: DDP as a job has it that does not say a size.
MEASURED = "ddp_measured"
KINDS = ("after", "early", *BUCKETS_MB, MEASURED)


class Timed(NamedTuple):
    seconds: float  # of a step
    exposed: float  # of it, communication that the rank waited for
    megabytes: float  # that a rank sends


class Always:
    """In place of the trial of `early_exchange`."""

    def __init__(self, early: bool) -> None:
        self.early = early

    def timed(self, seconds: float) -> None:
        """Go on as before."""


def spec_of(world: RankPlace, *, reproducible: bool) -> JobSpec:
    document = {
        "name": "bench",
        "resources": {"slots": world.world_size},
        "model": MODEL,
        "data": {"kind": "stdlib_text"},
        "training": {"steps": 1_000_000, "global_batch_size": GLOBAL_BATCH},
        "reproducible": reproducible,
    }
    return JobSpec.model_validate(document)


def steps(world: RankPlace, kind: str, count: int) -> list[Timed]:
    """Step times of one kind, without the first step; by `MEASURED` of those after the decision."""
    torch.set_num_threads(1)
    is_reproducible = kind in ("after", "early")
    spec = spec_of(world, reproducible=is_reproducible)
    sizes = spec.parallelism.degrees(world.world_size)
    group = join(world, GroupAborter(), mesh.axis_group_ranks(sizes))
    state = new_state(spec, torch.device("cpu"), env.cache_directory())
    coordinates = Coordinates(sizes, group.rank)
    sums = gradient_sums(spec, world, state, group) if kind == MEASURED else FixedSums(BackendReducer(group, BUCKETS_MB.get(kind)))
    wrapped = parallelize(state.task.model, sizes, state.device, group, reproducible=is_reproducible, reducer=sums.reducer)
    if isinstance(wrapped, Reproducible):
        wrapped.trial = Always(kind == "early")
    runner = LocalStepRunner(spec, state, group, wrapped, coordinates, first_assignment(derived.micro_batches(spec), coordinates, None))
    found: list[Timed] = []
    is_decided = kind != MEASURED
    while len(found) <= count or not is_decided:
        started = time.perf_counter()
        report = runner.run(NobodyAsks())
        found.append(timed(report, time.perf_counter() - started))
        state.pending_step = None
        if sums.after_step(report) is not None:
            found, is_decided = [], True
    group.barrier_and_leave()
    return found[1:]


def timed(report: StepReport, seconds: float) -> Timed:
    return Timed(seconds, report.parts["communication_seconds"], sum(report.sent.by_axis.values()) / 1e6)


def measure(rates: tuple[str | None, ...], rounds: int, count: int) -> list[Figure]:
    figures: list[Figure] = []
    for rate in rates:
        with shaped_hosts(2, rate) as network:
            by_kind: dict[str, list[Timed]] = {kind: [] for kind in KINDS}
            for number in range(rounds):
                for offset in range(len(KINDS)):
                    kind = KINDS[(number + offset) % len(KINDS)]
                    by_kind[kind] += run_on_hosts(steps, (0, 1), network, kind, count)[0]
        figures += figures_of(rate or "unshaped", by_kind)
    return figures


def figures_of(rate: str, by_kind: dict[str, list[Timed]]) -> list[Figure]:
    after = statistics.median(each.exposed for each in by_kind["after"])
    megabytes = by_kind["after"][0].megabytes
    of_all = f"2 hosts of one rank, {rate}, {megabytes:.1f} MB a rank and step"
    ratio = statistics.median(each.seconds for each in by_kind["after"])
    return [
        *(
            summarize(
                f"overlap_hidden_share_{rate}_{kind}",
                "ratio",
                [1 - each.exposed / after for each in by_kind[kind]],
                f"{of_all}; goal 0.5 at 1gbit",
            )
            for kind in KINDS[1:]
        ),
        *(
            summarize(
                f"step_vs_after_{rate}_{kind}",
                "ratio",
                [ratio / each.seconds for each in by_kind[kind]],
                "speed beside the exchange after backward",
            )
            for kind in KINDS[1:]
        ),
    ]


if __name__ == "__main__":
    run_shortened(lambda quick: measure(("1gbit",) if quick else ("1gbit", None), rounds=1 if quick else 2, count=6), __doc__)
