"""Where the values of a state's flat form are, so that each further save finds them without torch's search.

torch works the names of all parameters out anew for every `get_state_dict`: milliseconds for which training waits. They stay while the model and the
optimizer keep their form, so the first save remembers them, and each later one only fetches what stands there by now.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from paceline.parallelism.mesh import local_tensor
from paceline.training.saving.shards import Tensors, Trained, tensors_of

#: Before a parameter's name, in torch's flat names of an optimizer's values.
STATE, SETTING = "state.", "param_groups."


class StateValue(NamedTuple):
    """One value in an optimizer: of the parameter at a position of a group, or a setting of that group."""

    group: int
    position: int
    key: str
    is_setting: bool


@dataclass(frozen=True)
class KnownNames:
    """The names of one form of model and optimizer."""

    form: object
    model: Mapping[str, str]  # names in the flat form, by those in the model's own state dictionary; its aliases are left out
    optimizer: Mapping[str, StateValue]

    def read(self, state: Trained, own: Mapping[str, Any]) -> Tensors:
        """Return the flat form of `state`, whose model has the state dictionary `own`."""
        kept, groups = state.optimizer.state, state.optimizer.param_groups
        values = {
            name: groups[group][key] if is_setting else kept[groups[group]["params"][position]][key]
            for name, (group, position, key, is_setting) in self.optimizer.items()
        }
        return {"model": {flat: own[name] for name, flat in self.model.items()}, "optimizer": values}


class StateIndex:
    """Reads a state as `shards.tensors_of` does, and faster where the form is that of the last time."""

    def __init__(self) -> None:
        self._known: KnownNames | None = None

    @torch.no_grad()
    def tensors_of(self, state: Trained) -> Tensors:
        """Return model and optimizer by parameter name; the values are the state's own, not copies."""
        own = state.model.state_dict()
        if self._known is not None and self._known.form == form_of(state, own):
            return self._known.read(state, own)
        found = tensors_of(state)
        self._known = names_of(state, found)
        return found


def form_of(state: Trained, own: Mapping[str, Any]) -> object:
    """Return what decides which names a state has."""
    optimizer = state.optimizer
    groups = tuple((tuple(Identity(each) for each in group["params"]), tuple(group)) for group in optimizer.param_groups)
    kept = tuple((Identity(parameter), tuple(values)) for parameter, values in optimizer.state.items())
    return tuple(own), groups, kept


class Identity:
    """Equals that of the same living object only; tensors themselves would compare their elements. Keeps nothing alive."""

    def __init__(self, value: object) -> None:
        self._value = weakref.ref(value)

    def __eq__(self, other: object) -> bool:
        value = self._value()
        return value is not None and isinstance(other, Identity) and other._value() is value

    def __hash__(self) -> int:
        return id(self._value())


def names_of(state: Trained, found: Tensors) -> KnownNames | None:
    """Return the names of the state whose flat form is `found`, or None where reading by them would not give just that: an optimizer without
    state for some parameter, hooks that change what a state dictionary holds."""
    own = state.model.state_dict()
    places = optimizer_places(state.optimizer, found["optimizer"])
    by_value = {storage_of(value): name for name, value in own.items() if isinstance(value, Tensor)}
    names = {by_value.get(storage_of(value), ""): flat for flat, value in found["model"].items() if isinstance(value, Tensor)}
    if places is None or any(name not in own for name in names):
        return None
    known = KnownNames(form_of(state, own), names, places)
    return known if is_same(known.read(state, own), found) else None


def optimizer_places(optimizer: torch.optim.Optimizer, flat: Mapping[str, Any]) -> dict[str, StateValue] | None:
    """Return where each value of the flat form is in the optimizer, or None if one is not found."""
    by_identity = {
        id(value): StateValue(group, position, key, is_setting=False)
        for group, settings in enumerate(optimizer.param_groups)
        for position, parameter in enumerate(settings["params"])
        for key, value in optimizer.state.get(parameter, {}).items()
    }
    places = {name: by_identity.get(id(value)) for name, value in flat.items() if name.startswith(STATE)}
    owners = {name.removeprefix(STATE).removesuffix(f".{place.key}"): place for name, place in places.items() if place is not None}
    for name in flat.keys() - places.keys():
        parameter, _, key = name.removeprefix(SETTING).rpartition(".")
        owner = owners.get(parameter)
        places[name] = None if owner is None else owner._replace(key=key, is_setting=True)
    found = {name: place for name in flat if (place := places[name]) is not None}
    return found if len(found) == len(flat) else None


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
