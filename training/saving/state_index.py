"""Where the values of a state's flat form are, so that each further save finds them without torch's search.

torch works the names of all parameters out anew for every `get_state_dict`: milliseconds for which training waits. They stay while the model and the
optimizer keep their form, so the first save remembers them, and each later one only fetches what stands there by now.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from paceline.parallelism.mesh import local_tensor
from paceline.training.saving.optimizer_names import SETTING, STATE, parameters_kept
from paceline.training.saving.shards import Tensors, TrainedModel, tensors_of


@dataclass(frozen=True)
class KnownNames:
    """The names of one form of model and optimizer, and where the value of each stands in `values_of` such a state."""

    form: StateNames
    model: Mapping[str, int]  # without aliases
    optimizer: Mapping[str, int]

    def read(self, state: TrainedModel, own: Mapping[str, Any]) -> Tensors:
        """Return the flat form of `state`, whose model has the state dictionary `own`."""
        value_at = values_of(state, own).__getitem__
        return {
            "model": dict(zip(self.model, map(value_at, self.model.values()), strict=True)),
            "optimizer": dict(zip(self.optimizer, map(value_at, self.optimizer.values()), strict=True)),
        }


def values_of(state: TrainedModel, own: Mapping[str, Any]) -> list[Any]:
    """Return all values of the model, then what the optimizer keeps of each parameter, then the settings of its groups."""
    held = [*state.optimizer.state.values(), *state.optimizer.param_groups]
    return [*own.values(), *chain.from_iterable(each.values() for each in held)]


class StateIndex:
    """Reads a state as `shards.tensors_of` does, and faster where the form is that of the last time."""

    def __init__(self) -> None:
        self._known: KnownNames | None = None

    @torch.no_grad()
    def tensors_of(self, state: TrainedModel) -> Tensors:
        """Return model and optimizer by parameter name; the values are the state's own, not copies."""
        own = state.model.state_dict()
        if self._known is not None and self._known.form.is_of(state, own):
            return self._known.read(state, own)
        found = tensors_of(state)
        self._known = names_of(state, found)
        return found


@dataclass(frozen=True)
class StateNames:
    """Names of a model's values and an optimizer's parameters by identity, which decide what names a state has. Keeps none of them alive."""

    own: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]  # the settings of each
    grouped: tuple[weakref.ref[Tensor], ...]
    kept: tuple[weakref.ref[Tensor], ...]
    keys: tuple[tuple[str, ...], ...]  # of what is kept for each parameter

    def is_of(self, state: TrainedModel, own: Mapping[str, Any]) -> bool:
        """Return whether `state`, whose model has the state dictionary `own`, has this form."""
        grouped, kept, settings = parameters_of(state.optimizer), state.optimizer.state, state.optimizer.param_groups
        return (
            self.own == tuple(own)
            and self.groups == tuple(map(tuple, settings))
            and self.keys == tuple(map(tuple, kept.values()))
            and are_alive(self.grouped, grouped)
            and are_alive(self.kept, kept)
        )


def form_of(state: TrainedModel, own: Mapping[str, Any]) -> StateNames:
    optimizer = state.optimizer
    grouped, kept = map(weakref.ref, parameters_of(optimizer)), map(weakref.ref, optimizer.state)
    keys = map(tuple, optimizer.state.values())
    return StateNames(tuple(own), tuple(map(tuple, optimizer.param_groups)), tuple(grouped), tuple(kept), tuple(keys))


def parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def are_alive(known: Sequence[weakref.ref[Tensor]], found: Collection[Tensor]) -> bool:
    """Return whether `known` refers to the very tensors that were found, in their order."""
    return len(known) == len(found) and all(map(operator.is_, (each() for each in known), found))


def names_of(state: TrainedModel, found: Tensors) -> KnownNames | None:
    """Return the names of the state whose flat form is `found`, or None where reading by them would not give just that: an optimizer without
    state for some parameter, hooks that change what a state dictionary holds."""
    own = state.model.state_dict()
    by_value = {storage_of(value): place for place, value in enumerate(own.values()) if isinstance(value, Tensor)}
    model = {name: by_value.get(storage_of(value)) for name, value in found["model"].items() if isinstance(value, Tensor)}
    optimizer = optimizer_places(state.optimizer, found["optimizer"], start=len(own))
    model_places, optimizer_found = without_unknown(model), without_unknown(optimizer)
    if len(model_places) + len(optimizer_found) < len(model) + len(optimizer):
        return None
    known = KnownNames(form_of(state, own), model_places, optimizer_found)
    return known if is_same(known.read(state, own), found) else None


def optimizer_places(optimizer: torch.optim.Optimizer, flat: Mapping[str, Any], start: int) -> dict[str, int | None]:
    """Return where each value of the flat form stands in `values_of`, where the optimizer's begin at `start`; None where it is not found."""
    owners = parameters_kept(optimizer, flat)
    states = [(id(parameter), key) for parameter, values in optimizer.state.items() for key in values]
    settings = [(group, key) for group, values in enumerate(optimizer.param_groups) for key in values]
    places = {what: start + place for place, what in enumerate([*states, *settings])}
    group_of = {id(parameter): group for group, values in enumerate(optimizer.param_groups) for parameter in values["params"]}

    def place_of(name: str) -> int | None:
        owner, _, key = name.removeprefix(STATE if name.startswith(STATE) else SETTING).rpartition(".")
        identity = id(owners.get(owner))
        return places.get((identity if name.startswith(STATE) else group_of.get(identity, -1), key))

    return {name: place_of(name) for name in flat}


def without_unknown(places: Mapping[str, int | None]) -> dict[str, int]:
    return {name: place for name, place in places.items() if place is not None}


def storage_of(tensor: Tensor) -> object:
    """Return what two views of the same elements have in common."""
    local = local_tensor(tensor) if isinstance(tensor, DTensor) else tensor
    return local.untyped_storage().data_ptr(), local.storage_offset(), tuple(local.shape), tuple(local.stride()), local.dtype


def is_same(read: Tensors, found: Tensors) -> bool:
    """Return whether two flat forms have the same names in the same order, and the very same values."""
    return all(
        list(read[part]) == list(found[part])
        and all(
            storage_of(value) == storage_of(other) and type(value) is type(other) if isinstance(value, Tensor) else value == other
            for value, other in zip(read[part].values(), found[part].values(), strict=True)
        )
        for part in ("model", "optimizer")
    )
