"""What the same bits on any world cost: a step of our trainer, reproducible, against a bare loop on the same global batch.

All loops take turns in the same processes over one process group. A figure is the ratio of step times, bare over reproducible,
of neighbouring rounds: 1 is as fast as bare, more is faster. Portions are what each takes by itself, one batch a rank and the reproducible mode's
eight micro-batches; `same_portions` gives the reproducible mode one micro-batch a rank too, so that only the tree and its exchange differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from paceline.distributed import env
from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.process_group import Group
from paceline.parallelism.apply import parallelize
from paceline.parallelism.plan import Coordinates, degrees
from paceline.training.elastic import first_assignment
from paceline.training.link import RankPlace
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import new_state
from paceline.training.steps.step import LocalStepRunner
from scripts.bench.figures import Figure, run_shortened, summarize
from scripts.bench.throughput import MODEL, bare_loop, seconds
from tests.ranks import run_ranks

ROUNDS, QUICK_ROUNDS = 20, 3
GLOBAL_BATCH = 32
GOAL = 1.0
TIMEOUT_SECONDS = 900.0

Loop = Callable[[], None]


@dataclass(frozen=True)
class NobodyAsks:
    pause_wanted: bool = False
    leave_wanted: bool = False
    outcome_bytes: int | None = None
    checkpoint_wanted: bool = False
    gradients_wanted: bool = False


def our_loop(group: Group, *, micro_batch_size: int | None = None) -> Loop:
    spec = JobSpec.model_validate(
        {
            "name": "bench",
            "resources": {"nodes": group.world_size},
            "model": MODEL,
            "data": {"kind": "stdlib_text"},
            "training": {"steps": 1_000_000, "global_batch_size": GLOBAL_BATCH, "micro_batch_size": micro_batch_size},
            "reproducible": True,
        }
    )
    state = new_state(spec, torch.device("cpu"), env.cache_directory())
    coordinates = Coordinates(degrees("ddp", group.world_size), group.rank)
    wrapped = parallelize(state.task.model, coordinates.degrees, state.device, group, reproducible=True)
    step_runner = LocalStepRunner(
        spec, state, group, wrapped, coordinates, first_assignment(derived.micro_batches(spec), coordinates, None)
    )
    return lambda: void(step_runner.run(NobodyAsks()))


def void(_: object) -> None:
    """A loop's answer is not of interest."""


def compare(world: RankPlace, rounds: int) -> list[tuple[float, float]]:
    """Per round: bare over reproducible, with its own portions and with the bare loop's."""
    torch.set_num_threads(1)
    group, batch = join(world, GroupAborter()), GLOBAL_BATCH // world.world_size
    loops = (our_loop(group), bare_loop(world.world_size, batch), our_loop(group, micro_batch_size=batch))
    for loop in loops:
        seconds(loop)  # warm up
    return [round_ratios(loops, number % len(loops)) for number in range(rounds)]


def round_ratios(loops: tuple[Loop, Loop, Loop], turn: int) -> tuple[float, float]:
    """The order rotates, so that none always runs after the same other."""
    taken = [0.0] * len(loops)
    for offset in range(len(loops)):
        index = (turn + offset) % len(loops)
        taken[index] = seconds(loops[index])
    own, bare, same = taken
    return bare / own, bare / same


def measure(quick: bool) -> list[Figure]:
    figures, rounds = [], QUICK_ROUNDS if quick else ROUNDS
    for rival, world_size in (("ddp", 2), ("single", 1)):
        own, same = zip(*run_ranks(compare, world_size, rounds, timeout=TIMEOUT_SECONDS)[0], strict=True)
        batch = f"global batch {GLOBAL_BATCH} on {world_size} process(es)"
        figures.append(summarize(f"reproducible_vs_{rival}", "ratio", own, f"a bare loop, {batch}; the default from {GOAL}"))
        figures.append(summarize(f"reproducible_same_portions_vs_{rival}", "ratio", same, f"a bare loop, {batch}"))
    return figures


if __name__ == "__main__":
    run_shortened(measure, __doc__)
