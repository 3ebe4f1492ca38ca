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

from parallelism.mesh import local_part
from parallelism.plan import Part
from training.saving.shards import Tensors, tensors_of
from training.spec.job import JobSpec
from training.state import Held, StepReport, TrainState, building, new_state
from training.steps.loss_scale import Unscaled


@dataclass(frozen=True)
class Legacy:
    """Of a state whose model is gone."""

    step: int
    best: float | None
    begun: bool
    generation: int
    unsettled: StepReport | None
    save_owed: bool
    scale: Unscaled
    reports: tuple[StepReport, ...]
    held: Held | None


def legacy_of(state: TrainState, part: Part | None) -> Legacy:
    """To be taken while the group stands; nothing of it refers to the model any more. `part`: what this rank holds of it; None: what the next
    generation may cut otherwise."""
    return Legacy(
        state.step,
        state.best,
        state.begun,
        state.generation,
        state.unsettled,
        state.save_owed,
        state.scale,
        tuple(state.reports),
        held_of(state, part),
    )


def held_of(state: TrainState, part: Part | None) -> Held | None:
    """What was held of the state before stays so until it has been put back: the model knows nothing of it yet. At step 0 every model is
    the one that is built from the seed."""
    if state.held or not state.begun or state.step == 0 or part is None:
        return state.held
    return Held(part, on_the_host(tensors_of(state)))


def on_the_host(tensors: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Tensor]]:
    """This rank's part of each: there is no room for it twice on a GPU."""
    return {
        kind: {name: local_part(value.detach()).to("cpu") for name, value in named.items() if isinstance(value, Tensor)}
        for kind, named in tensors.items()
    }


def renewed(spec: JobSpec, device: torch.device, cache: Path, legacy: Legacy) -> TrainState:
    """Built from the seed, to go on from where the one before it was."""
    state = new_state(spec, device, cache, building(spec))
    state.step, state.best, state.begun, state.generation = legacy.step, legacy.best, legacy.begun, legacy.generation
    state.unsettled, state.save_owed, state.held = legacy.unsettled, legacy.save_owed, legacy.held
    state.scale = legacy.scale
    state.reports.extend(legacy.reports)
    return state


@torch.no_grad()
def put_back(held: Held, tensors: Tensors) -> None:
    """Into this rank's part of `tensors`, which is the same part in the new world."""
    for kind, named in held.tensors.items():
        for name, value in named.items():
            local_part(tensors[kind][name]).copy_(value)
