"""What the same bits on any world cost: a step of our trainer, reproducible, against DDP, on two ranks and the same global batch.

All loops take turns in the same processes over one process group. A figure is the ratio of step times, DDP over reproducible,
of neighbouring rounds: 1 is as fast as DDP, more is faster. Portions are what each would use by itself: DDP one batch a rank, the
reproducible mode its eight micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from distributed import env
from distributed.process_group import Group, join
from parallelism.apply import parallelize
from parallelism.plan import Deal, degrees
from scripts.bench.figures import Figure, run, summarize
from scripts.bench.throughput import MODEL, bare_loop, seconds
from tests.ranks import run_ranks
from training.link import World
from training.spec import JobSpec
from training.state import new_state
from training.step import Stepper

ROUNDS = 20
WORLD_SIZE = 2
GLOBAL_BATCH = 32
GOAL = 0.97
TIMEOUT_SECONDS = 900.0

Loop = Callable[[], None]


@dataclass(frozen=True)
class NobodyAsks:
    pause_wanted: bool = False
    checkpoint_wanted: bool = False


def our_loop(group: Group, reproducible: bool) -> Loop:
    training = {"steps": 1_000_000, "global_batch_size": GLOBAL_BATCH}
    spec = JobSpec.model_validate(
        {
            "name": "bench",
            "resources": {"nodes": group.world_size},
            "model": MODEL,
            "data": {"kind": "stdlib_text"},
            "training": training,
            "reproducible": reproducible,
        }
    )
    state = new_state(spec, torch.device("cpu"), env.cache_directory())
    deal = Deal(spec.micro_batches, group.rank, group.world_size)
    wrapped = parallelize(state.task.model, degrees("ddp", group.world_size), state.device, deal, reproducible=reproducible)
    stepper = Stepper(spec, state, group, wrapped)
    return lambda: void(stepper.run(NobodyAsks()))


def void(_: object) -> None:
    """A loop's answer is not of interest."""


def compare(world: World) -> list[tuple[float, float]]:
    """Per round: (bare DDP, our fast mode) over reproducible."""
    torch.set_num_threads(1)
    group = join(world)
    loops = {
        "reproducible": our_loop(group, True),
        "bare": bare_loop(world.world_size, GLOBAL_BATCH // world.world_size),
        "fast": our_loop(group, False),
    }
    for loop in loops.values():
        seconds(loop)  # warm up
    return [round_ratios(loops, number) for number in range(ROUNDS)]


def round_ratios(loops: dict[str, Loop], number: int) -> tuple[float, float]:
    """The order rotates, so that none always runs after the same other."""
    names = list(loops)
    turn = number % len(names)
    taken = {name: seconds(loops[name]) for name in names[turn:] + names[:turn]}
    return taken["bare"] / taken["reproducible"], taken["fast"] / taken["reproducible"]


def measure() -> list[Figure]:
    rounds = run_ranks(compare, WORLD_SIZE, timeout=TIMEOUT_SECONDS)[0]
    bare, fast = zip(*rounds, strict=True)
    batch = f"global batch {GLOBAL_BATCH} on {WORLD_SIZE} ranks"
    return [
        summarize("reproducible_vs_ddp", "ratio", bare, f"a bare DDP loop, {batch}; default at {GOAL} or more"),
        summarize("reproducible_vs_fast", "ratio", fast, f"our trainer with reproducible: false, {batch}"),
    ]


if __name__ == "__main__":
    run(measure, __doc__)
