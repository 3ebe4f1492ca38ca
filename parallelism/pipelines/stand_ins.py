"""Modules that the loss gets in place of a model whose stages lie on several ranks.

The loss of a micro-batch runs twice: on the first stage until it calls the model, which tells the model's inputs, and on the last stage with
the model's outputs. So it can call the model once, and a look at anything else of the model would give other numbers than one process has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from paceline.parallelism.pipelines.chain import UnsplittableModelError

WAY_OUT = "in a pipeline it may call the model once, with one tensor, and ask for nothing else of it; or train with ddp or fsdp"


class ModelStandIn(nn.Module):
    """Refuses what only the whole model could answer; it is in training mode where gradients are computed, as the model is."""

    def __init__(self) -> None:
        super().__init__()
        self.training = torch.is_grad_enabled()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "module":  # libraries ask for the former, code that unwraps a model for the latter
            return super().__getattr__(name)
        raise UnsplittableModelError(f"the loss reads {name!r} of the model that it is given; {WAY_OUT}")

    def named_parameters(self, *arguments: Any, **options: Any) -> NoReturn:
        refuse("parameters")

    def named_buffers(self, *arguments: Any, **options: Any) -> NoReturn:
        refuse("buffers")

    def named_modules(self, *arguments: Any, **options: Any) -> NoReturn:
        refuse("modules")

    def named_children(self) -> NoReturn:
        refuse("modules")

    def state_dict(self, *arguments: Any, **options: Any) -> NoReturn:
        refuse("state")


def refuse(what: str) -> NoReturn:
    """Raise the error of a loss that looks into the model."""
    raise UnsplittableModelError(f"the loss asks for the {what} of the model that it is given, of which each rank has a part; {WAY_OUT}")


class StageInput(ModelStandIn):
    """Stands in for the model on the first stage, to find out what the loss calls it with: it raises `ModelCalled`."""

    def forward(self, inputs: Tensor) -> Tensor:
        raise ModelCalled(inputs)


class ModelCalled(Exception):
    """Ends the loss where it calls the model with `inputs`."""

    def __init__(self, inputs: Tensor) -> None:
        self.inputs = inputs


class StageOutput(ModelStandIn):
    """Stands in for the model on the last stage, and returns the outputs of that stage."""

    def __init__(self, outputs: Tensor, called: Callable[[], None] = lambda: None) -> None:
        """`called`: is run when the loss calls the model."""
        super().__init__()
        self._outputs: Tensor | None = outputs
        self._called = called

    def forward(self, inputs: Tensor) -> Tensor:
        outputs, self._outputs = self._outputs, None
        if outputs is None:
            raise UnsplittableModelError(f"the loss calls the model that it is given a second time; {WAY_OUT}")
        self._called()
        return outputs
