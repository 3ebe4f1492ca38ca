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

from paceline.distributed import env
from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.process_group import Group
from paceline.parallelism.model_shape import NumberFormats
from paceline.parallelism.plan import Coordinates, Degrees
from paceline.parallelism.planning.auto import Candidate, PlanRequest, SupportedPlans, budget_of, choose
from paceline.training.build import make_ready
from paceline.training.elastic import first_assignment
from paceline.training.link import RankPlace
from paceline.training.models.catalog import shape_of
from paceline.training.models.gpt.config import GptModel
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import new_state, rebuild_optimizer
from scripts.bench.figures import Figure, summarize
from scripts.bench.parallel.probe import measured_machines
from scripts.bench.parallel.turns import Loop, in_turns
from scripts.bench.parallel.workload import CPU, MODEL, RANKS, spec_of
from scripts.bench.reproducible import NobodyAsks
from tests.ranks import run_ranks

GOAL = 0.95
SUPPORTED = SupportedPlans(axes=("replicate", "shard", "pipeline"), activation_checkpointing=("none", "selective", "full"))
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
    described = "; ".join(f"{name}: {describe(tried)}" for name, tried in found.items())
    reference = f"speed of the plan that auto chooses, beside the best one; at least {GOAL}; here of size {worst}. {described}"
    return [summarize("auto_vs_best", "ratio", found[worst].ratios, reference)]


def describe(tried: Tried) -> str:
    beside = "the best" if tried.chosen == tried.best else f"{statistics.median(tried.ratios):.3f} of {tried.best}"
    return f"{tried.chosen} is {beside} of {tried.plans} plans that fit"


def try_all(world: RankPlace, size: Size, rounds: int) -> Tried:
    torch.set_num_threads(1)
    model = size.spec().model
    assert isinstance(model, GptModel)
    wanted = PlanRequest(shape_of(model, None, NumberFormats()), size.batch)
    group = join(world, GroupAborter(), AXES)
    chosen, fitting = choose_plan(size, wanted)
    loops = {each.name: loop_of(size.spec(each), group) for each in fitting}
    screened = in_turns(loops, rounds)
    best = min(loops, key=lambda plan: statistics.median(each[plan] for each in screened))
    best = group.all_gather_object(best)[0]  # clocks differ
    final = in_turns({plan: loops[plan] for plan in (best, chosen.name)}, 2 * rounds)
    return Tried(best, chosen.name, len(loops), [each[best] / each[chosen.name] for each in final])


def choose_plan(size: Size, wanted: PlanRequest) -> tuple[Candidate, list[Candidate]]:
    """Return (the chosen plan, all that fit)."""
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
    rebuild_optimizer(state, spec)
    step_runner = steps_from(spec, first_assignment(derived.micro_batches(spec), coordinates, None))
    return lambda: step_runner.run(NobodyAsks())


def as_joined_for(degrees: Degrees, group: Group) -> Group:
    """Restrict the group to the axes that a job of these degrees has."""
    found = copy.copy(group)
    found.axis_groups = {axis: each for axis, each in group.axis_groups.items() if getattr(degrees, axis) > 1}
    return found
