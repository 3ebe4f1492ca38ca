"""Parameters that a model holds under several names (tied weights): saved, sent and hashed once, by the first name."""

from __future__ import annotations

from typing import Any

from torch import nn


def aliases(model: nn.Module) -> dict[str, str]:
    """The first name by each further one."""
    first: dict[nn.Parameter, str] = {}
    named = model.named_parameters(remove_duplicate=False)
    return {name: first[parameter] for name, parameter in named if first.setdefault(parameter, name) != name}


def without_aliases(tensors: dict[str, Any], model: nn.Module) -> dict[str, Any]:
    """A model's state dictionary with each parameter once."""
    further = aliases(model)
    return {name: tensor for name, tensor in tensors.items() if further.get(name) not in tensors}


def with_aliases(tensors: dict[str, Any], model: nn.Module) -> dict[str, Any]:
    """Add the aliases of tied parameters, which torch expects when loading."""
    return tensors | {name: tensors[first] for name, first in aliases(model).items() if first in tensors}
