"""Which parameters of a model are meant by patterns of names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.parallelism.communication.pieces import plain_names

NAMES_IN_ERRORS = 5


def trainable_parameters(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the trainable parameters with every name that they have, without what wrappers put into names."""
    return [(name, parameter) for name, parameter in _named_parameters(model) if parameter.requires_grad]


def matching(model: nn.Module, patterns: Sequence[str]) -> dict[nn.Parameter, str]:
    """Return the trainable parameters that have a name of one of the patterns, as of fnmatch, in the model's order.

    A tied parameter has one gradient, and is there once, under the first of those names.
    """
    chosen: dict[nn.Parameter, str] = {}
    for name, parameter in trainable_parameters(model):
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            chosen.setdefault(parameter, name)
    return chosen


def patterns_in_use(model: nn.Module, patterns: Sequence[str]) -> set[str]:
    """Return the patterns that the name of a trainable parameter matches."""
    names = [name for name, _ in trainable_parameters(model)]
    return {pattern for pattern in patterns if any(fnmatchcase(name, pattern) for name in names)}


def _named_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    while (inner := model.module if isinstance(model, DistributedDataParallel) else getattr(model, "_orig_mod", None)) is not None:
        model = inner
    return plain_names(model)
