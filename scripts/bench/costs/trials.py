"""Real steps of every kind of plan on one and on two ranks: what the cost model is fitted to, and what it has to tell.

All plans take turns in the same two processes, one thread each, so that whatever else the machine does hits all of them alike. Of a plan's
rounds the faster half counts: the slower half is other work on the machine.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from paceline.distributed import env
from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.process_group import Group
from paceline.distributed.solo_group import SoloGroup
from paceline.parallelism.plan import Coordinates
from paceline.training.build import make_ready
from paceline.training.elastic import first_assignment
from paceline.training.link import RankPlace
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import new_state, rebuild_optimizer
from scripts.bench.parallel.contests import rest
from scripts.bench.parallel.plans import as_joined_for
from scripts.bench.parallel.turns import Loop, in_turns
from scripts.bench.parallel.workload import CPU, MODEL, RANKS, spec_of
from scripts.bench.reproducible import NobodyAsks
from tests.ranks import run_ranks

AXES = {axis: [list(range(RANKS))] for axis in ("replicate", "shard", "tensor", "pipeline")}
TIMEOUT_SECONDS = 1800.0
MODELS: Mapping[str, Mapping[str, Any]] = {
    "usual": {},
    "wide": {"layers": 2, "dim": 512, "context": 64},
    "small": {"dim": 128},
    "deep": {"layers": 8, "dim": 128},
}
BATCHES = (2, 8)
#: By name: what a job says of its parallelism, into how many micro-batches a rank's share is cut, and whether its sums are reproducible.
PLANS: Mapping[str, tuple[Mapping[str, Any], int, bool]] = {
    "single": ({"strategy": "single"}, 1, False),
    "single, 4 micro-batches": ({"strategy": "single"}, 4, False),
    "ddp": ({"strategy": "ddp"}, 1, False),
    "ddp, reproducible": ({"strategy": "ddp"}, 2, True),
    "fsdp": ({"strategy": "fsdp"}, 1, False),
    "fsdp, checkpointing": ({"strategy": "fsdp", "activation_checkpointing": "full"}, 1, False),
    "tensor": ({"strategy": "ddp", "tensor": 2}, 1, False),
    "pipeline": ({"strategy": "ddp", "pipeline": 2}, 4, False),
}


@dataclass(frozen=True)
class PlanTrial:
    """One plan of one model with one global batch."""

    name: str
    document: Mapping[str, Any]  # a job spec

    @property
    def spec(self) -> JobSpec:
        return JobSpec.model_validate(self.document)


@dataclass(frozen=True)
class MeasuredTrial:
    trial: PlanTrial
    seconds: float  # of a step
    spread: float  # the slowest of the faster half over the fastest


def trials(models: Sequence[str] = tuple(MODELS), batches: Sequence[int] = BATCHES, plans: Sequence[str] = tuple(PLANS)) -> list[PlanTrial]:
    return [trial(model, batch, plan) for model in models for batch in batches for plan in plans]


def trial(model: str, batch: int, plan: str) -> PlanTrial:
    parallelism, pieces, reproducible = PLANS[plan]
    ranks = 1 if parallelism["strategy"] == "single" else RANKS
    data = ranks if not {"tensor", "pipeline"} & set(parallelism) else 1
    size = max(1, batch // data // pieces)
    spec = spec_of({**MODEL, **MODELS[model]}, ranks, size, batch, parallelism=dict(parallelism), reproducible=reproducible)
    return PlanTrial(f"{model}, batch {batch}, {plan}", spec.model_dump(mode="json", exclude_unset=True))


def measure(chosen: Sequence[PlanTrial], rounds: int) -> list[MeasuredTrial]:
    """Return the seconds of a step of each trial, in the order of the trials."""
    found: list[dict[str, float]] = run_ranks(step_all, RANKS, tuple(chosen), rounds, timeout=TIMEOUT_SECONDS)[0]
    return [measured(each, [each_round[each.name] for each_round in found]) for each in chosen]


def measured(trial: PlanTrial, rounds: Sequence[float]) -> MeasuredTrial:
    faster = sorted(rounds)[: (len(rounds) + 1) // 2]
    return MeasuredTrial(trial, statistics.median(faster), faster[-1] / faster[0])


def keep(found: Sequence[MeasuredTrial], file: Path) -> None:
    """Write measured steps to a file, as JSON."""
    file.write_text(json.dumps([asdict(each) for each in found], indent=1))


def read(file: Path) -> list[MeasuredTrial]:
    """Return the measured steps of a file that `keep` has written."""
    return [MeasuredTrial(PlanTrial(**each.pop("trial")), **each) for each in json.loads(file.read_text())]


def step_all(world: RankPlace, chosen: Sequence[PlanTrial], rounds: int) -> list[dict[str, float]]:
    torch.set_num_threads(1)
    group = join(world, GroupAborter(), AXES)
    return in_turns({each.name: loop_of(each.spec, group) for each in chosen}, rounds, steps=1)


def loop_of(spec: JobSpec, group: Group) -> Loop:
    """Return the loop of a job's steps on this rank; that of a single process runs on rank 0 while the other one waits."""
    alone = spec.world_size == 1
    if alone and group.rank > 0:
        return rest
    degrees = spec.parallelism.degrees(spec.world_size)
    joined: Group = SoloGroup() if alone else as_joined_for(degrees, group)
    coordinates = Coordinates(degrees, joined.rank)
    state = new_state(spec, CPU, env.cache_directory())
    steps_from = make_ready(spec, state, joined, coordinates)
    rebuild_optimizer(state, spec)
    step_runner = steps_from(spec, first_assignment(derived.micro_batches(spec), coordinates, None))
    return lambda: step_runner.run(NobodyAsks())
