"""Optimizers that were made before the Trainer: they get the parameters that sharding has put in the place of the model's own."""

from __future__ import annotations

import weakref

import torch
from torch import nn

from paceline.training.errors import InvalidInputError


class ReplacedParameters:
    """The names of a model's parameters as they were before it was parallelized. It keeps none of them alive."""

    def __init__(self, model: nn.Module) -> None:
        self._before = [(name, weakref.ref(parameter)) for name, parameter in model.named_parameters()]

    def adopt(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
        """Replace in `optimizer` what was replaced in `model`. Raises InvalidInputError if the optimizer has taken steps with the old ones."""
        names = {id(found): name for name, old in self._before if (found := old()) is not None}
        now = dict(model.named_parameters())
        stale = [p for group in optimizer.param_groups for p in group["params"] if id(p) in names and now[names[id(p)]] is not p]
        if not stale:
            return
        if optimizer.state:
            raise InvalidInputError(
                "the optimizer has taken steps with parameters that fsdp has replaced since; make it after the trainer, of trainer.model.parameters()"
            )
        for group in optimizer.param_groups:
            group["params"] = [now[names[id(p)]] if id(p) in names else p for p in group["params"]]
