"""The plan that `auto` chooses, beside every other one that jobs support and that fits: all of them are tried, step by step in turns.

Screening finds the fastest; then that one and the chosen one take turns by themselves, since the least of many noisy medians is too small.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from distributed import env
from distributed.abort import Fence
from distributed.process_group import Group, join
from parallelism.plan import Coordinates, Degrees
from parallelism.planning.auto import Candidate, Supported, Wanted, budget_of, choose
from parallelism.planning.shape import Numbers
from scripts.bench.figures import Figure, summarize
from scripts.bench.parallel.probe import measured_machines
from scripts.bench.parallel.turns import Loop, in_turns
from scripts.bench.parallel.workload import CPU, MODEL, RANKS, spec_of
from scripts.bench.reproducible import NobodyAsks
from tests.ranks import run_ranks
from training.build import make_ready
from training.elastic import first_deal
from training.link import World
from training.planning.estimates import shape_of
from training.spec.job import JobSpec
from training.spec.workload import GptModel
from training.state import follow_model, new_state

GOAL = 0.95
SUPPORTED = Supported(axes=("replicate", "shard", "pipeline"), activation_checkpointing=("none", "selective", "full"))
AXES = {axis: [list(range(RANKS))] for axis in SUPPORTED.axes}
PLENTY = 1 << 34  # bytes
TIMEOUT_SECONDS = 900.0


@dataclass(frozen=True)
class Size:
    changes: Mapping[str, Any]  # to the model
    batch: int
    memory_bytes: int = PLENTY  # of a slot

    def spec(self, candidate: Candidate | None = None) -> JobSpec:
        """A job with this plan; without one, only its model counts."""
        model = {**MODEL, **self.changes}
        if candidate is None:
            return spec_of(model, RANKS, 1, self.batch)
        setup = candidate.setup
        strategy = "fsdp" if setup.degrees.shard > 1 else "ddp"
        parallelism = {
            "strategy": strategy,
            "pipeline": setup.degrees.pipeline,
            "activation_checkpointing": setup.activation_checkpointing,
        }
        return spec_of(model, RANKS, setup.micro_batch_size, self.batch, parallelism=parallelism)


#: The usual one; one that computes little for each parameter; the usual one where copies of all of it hardly fit.
SIZES = {
    "usual": Size({}, batch=16),
    "wide": Size({"layers": 2, "dim": 512, "context": 64}, batch=8),
    "tight": Size({}, batch=16, memory_bytes=70_000_000),
}


class Tried(NamedTuple):
    best: str
    chosen: str
    plans: int  # that fit
    ratios: list[float]  # by round: seconds of a step of the best one, over those of the chosen one


def measure(rounds: int, names: Sequence[str] = tuple(SIZES)) -> list[Figure]:
    found: dict[str, Tried] = {name: run_ranks(try_all, RANKS, SIZES[name], rounds, timeout=TIMEOUT_SECONDS)[0] for name in names}
    worst = min(found, key=lambda name: statistics.median(found[name].ratios))
    told = "; ".join(f"{name}: {tell(tried)}" for name, tried in found.items())
    reference = f"speed of the plan that auto chooses, beside the best one; at least {GOAL}; here of size {worst}. {told}"
    return [summarize("auto_vs_best", "ratio", found[worst].ratios, reference)]


def tell(tried: Tried) -> str:
    beside = "the best" if tried.chosen == tried.best else f"{statistics.median(tried.ratios):.3f} of {tried.best}"
    return f"{tried.chosen} is {beside} of {tried.plans} plans that fit"


def try_all(world: World, size: Size, rounds: int) -> Tried:
    torch.set_num_threads(1)
    model = size.spec().model
    assert isinstance(model, GptModel)
    wanted = Wanted(shape_of(model, None, Numbers()), size.batch)
    group = join(world, Fence(), AXES)
    chosen, fitting = choose_plan(size, wanted)
    loops = {each.name: loop_of(size.spec(each), group) for each in fitting}
    screened = in_turns(loops, rounds)
    best = min(loops, key=lambda plan: statistics.median(each[plan] for each in screened))
    best = group.gather(best)[0]  # clocks differ
    final = in_turns({plan: loops[plan] for plan in (best, chosen.name)}, 2 * rounds)
    return Tried(best, chosen.name, len(loops), [each[best] / each[chosen.name] for each in final])


def choose_plan(size: Size, wanted: Wanted) -> tuple[Candidate, list[Candidate]]:
    """(the one that is chosen, all that fit)"""
    task = new_state(size.spec(), CPU, env.cache_directory()).task
    machines = measured_machines(task, wanted.shape, size.memory_bytes)
    choice = choose(wanted, machines, SUPPORTED)
    if choice.best is None:
        raise ValueError(f"nothing fits {size}: {choice.why}")
    others = [each.candidate for each in choice.rejected]
    return choice.best, [each for each in (choice.best, *others) if each.memory.total <= budget_of(machines)]


def loop_of(spec: JobSpec, group: Group) -> Loop:
    state = new_state(spec, CPU, env.cache_directory())
    coordinates = Coordinates(spec.parallelism.degrees(group.world_size), group.rank)
    steps_from = make_ready(spec, state, as_joined_for(coordinates.degrees, group), coordinates)
    follow_model(state, spec)
    stepper = steps_from(spec, first_deal(spec.micro_batches, coordinates, None))
    return lambda: stepper.run(NobodyAsks())


def as_joined_for(degrees: Degrees, group: Group) -> Group:
    """Only with the lines that a job of these degrees has."""
    found = copy.copy(group)
    found.lines = {axis: line for axis, line in group.lines.items() if getattr(degrees, axis) > 1}
    return found
