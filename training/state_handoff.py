"""A state in parts lives through one generation: what it leaves behind, and the state that is built in its place.

Sharding changes a model for good, and ties it to a mesh whose groups are gone with the generation. So the next generation gets a model that is
built anew, in the same process, and cut for the new world. What this rank held of the old one waits on the host until the ranks
know whether all parts are still there between them (`elastic.agree`); where one is missing all of them go back to a checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paceline.distributed.reduction import ReductionState
from paceline.parallelism.communication.trial import CommunicationTrial
from paceline.parallelism.mesh import local_tensor
from paceline.parallelism.plan import StateShard
from paceline.training.optim.loss_guard import LossGuard
from paceline.training.optim.loss_scale import Unscaled
from paceline.training.saving.shards import Tensors, tensors_of
from paceline.training.spec.job import JobSpec
from paceline.training.state import HeldShards, Numbers, StepReport, TrainState, building, new_state


@dataclass(frozen=True)
class CarriedState:
    """Remains of a `TrainState` after its sharded model is destroyed: progress, loss scale, reports, what its gradients have left out, and this rank's
    shards on the host."""

    step: int
    best: float | None
    started: bool
    generation: int
    pending_step: StepReport | None
    save_unfinished: bool
    scale: Unscaled
    guard: LossGuard
    reports: tuple[StepReport, ...]
    unsent: ReductionState
    unsent_next: ReductionState
    communication: CommunicationTrial | None
    held: HeldShards | None


def detach_state(state: TrainState, part: StateShard | None) -> CarriedState:
    """Detach the state from its model, while the group stands; the result holds no reference to the model.

    `part` is the part of the state that this rank holds; None if the next generation may shard otherwise.
    """
    return CarriedState(
        state.step,
        state.best,
        state.started,
        state.generation,
        state.pending_step,
        state.save_unfinished,
        state.scale,
        state.guard,
        tuple(state.reports),
        state.unsent,
        state.unsent_next,
        state.communication,
        held_shards(state, part),
    )


def held_shards(state: TrainState, part: StateShard | None) -> HeldShards | None:
    """Return this rank's shards on the host, or None.

    Shards that were held before and not yet restored stay so: the model does not have them. At step 0 every model equals the one that is
    built from the seed.
    """
    if state.held or not state.started or state.step == 0 or part is None:
        return state.held
    tensors = tensors_of(state)
    return HeldShards(part, copy_to_host(tensors), numbers_in(tensors))


def copy_to_host(tensors: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Tensor]]:
    """Copy this rank's part of each tensor to the host: there is no room for it twice on a GPU."""
    return {
        kind: {name: local_tensor(value.detach()).to("cpu") for name, value in named.items() if isinstance(value, Tensor)}
        for kind, named in tensors.items()
    }


def numbers_in(tensors: Tensors) -> Numbers:
    """Return what is kept as a Python number beside the tensors: many optimizers count their updates so."""
    return {kind: {name: value for name, value in named.items() if isinstance(value, int | float)} for kind, named in tensors.items()}


def put_numbers(numbers: Numbers, tensors: Tensors) -> None:
    for kind, named in numbers.items():
        tensors[kind].update(named)


def rebuild_state(spec: JobSpec, device: torch.device, cache: Path, carried: CarriedState) -> TrainState:
    """Build a state from the seed, and continue with the progress in `carried`."""
    state = new_state(spec, device, cache, building(spec))
    state.step = carried.step
    state.best = carried.best
    state.started = carried.started
    state.generation = carried.generation
    state.pending_step = carried.pending_step
    state.save_unfinished = carried.save_unfinished
    state.held = carried.held
    state.scale = carried.scale
    state.guard = carried.guard
    state.reports.extend(carried.reports)
    state.unsent = carried.unsent
    state.unsent_next = carried.unsent_next
    state.communication = carried.communication
    return state


@torch.no_grad()
def restore_shards(held: HeldShards, tensors: Tensors) -> None:
    """Copy the held shards into this rank's part of `tensors`, which is the same part in the new world."""
    for kind, named in held.tensors.items():
        for name, value in named.items():
            local_tensor(tensors[kind][name]).copy_(value)
    put_numbers(held.numbers, tensors)
