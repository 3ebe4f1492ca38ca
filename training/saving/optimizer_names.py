"""Names in an optimizer's flat form: `state.NAME.KEY` for each value that it keeps of a parameter, `param_groups.NAME.SETTING` for each setting."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

#: Before a parameter's name, in torch's flat names of an optimizer's values.
STATE, SETTING = "state.", "param_groups."


def kept_of(names: Iterable[str]) -> dict[str, str]:
    """Return, by the name of each value that is kept of a parameter, that parameter's name. Every parameter has settings among `names`."""
    names = list(names)
    parameters = parameters_in(names)
    return {name: owner_of(name, parameters) for name in names if name.startswith(STATE)}


def never_updated(names: Iterable[str]) -> set[str]:
    """Return the names of the parameters of which nothing is kept."""
    names = list(names)
    return parameters_in(names) - set(kept_of(names).values())


def parameters_in(names: Iterable[str]) -> set[str]:
    """Return the names of all parameters that have settings."""
    return {name.removeprefix(SETTING).rpartition(".")[0] for name in names if name.startswith(SETTING)}


def owner_of(name: str, parameters: Collection[str]) -> str:
    """Return whose value `name` is. Keys may have points in them, as names have."""
    owner = name.removeprefix(STATE)
    while owner and owner not in parameters:
        owner = owner.rpartition(".")[0]
    return owner


def parameters_kept(optimizer: torch.optim.Optimizer, flat: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return by name the parameters of which the optimizer keeps tensors, those in its flat form: torch's flat names have a parameter's name, and
    the optimizer has none."""
    kept = {id(value): (parameter, key) for parameter, values in optimizer.state.items() for key, value in values.items()}
    found = dict[str, Tensor]()
    for name, value in flat.items():
        if name.startswith(STATE) and isinstance(value, Tensor) and id(value) in kept:
            parameter, key = kept[id(value)]
            found[name.removeprefix(STATE).removesuffix(f".{key}")] = parameter
    return found
