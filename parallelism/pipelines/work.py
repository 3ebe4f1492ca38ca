"""A step's micro-batches as a pipeline asks for them; and what stands in for the model where a loss is to call it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch import Tensor, nn

from parallelism.pipelines.chain import UncuttableModelError


class Work(Protocol):
    """Micro-batches, by index; called in the order in which a stage computes them."""

    @property
    def scale(self) -> float:
        """What losses are multiplied by before backward, a power of two."""
        ...

    def rows(self, index: int) -> int:
        """Samples."""
        ...

    def batch(self, index: int) -> Any:
        """Seed all randomness for this micro-batch, then fetch it. Called on the first and the last stage."""
        ...

    def loss(self, model: nn.Module, index: int, batch: Any) -> Tensor:
        """Its part of the mean over the global batch. Calls `model` once, with one tensor, and draws nothing before that."""
        ...

    def autocast(self) -> AbstractContextManager[object]:
        """Around the forward pass."""
        ...


class Entrance(nn.Module):
    """Stands in for the model, to see what it would be called with."""

    def forward(self, inputs: Tensor) -> Tensor:
        raise _Entered(inputs)


class _Entered(Exception):
    def __init__(self, inputs: Tensor) -> None:
        self.inputs = inputs


def inputs_of(work: Work, index: int, batch: Any) -> Tensor:
    """What the loss of a micro-batch calls the model with."""
    try:
        work.loss(Entrance(), index, batch)
    except _Entered as entered:
        return entered.inputs
    raise UncuttableModelError("the loss does not call the model that it is given; a pipeline needs it to, once, with one tensor")


class Exit(nn.Module):
    """Stands in for the model, to hand over what it would give."""

    def __init__(self, outputs: Tensor) -> None:
        super().__init__()
        self._outputs = outputs

    def forward(self, inputs: Tensor) -> Tensor:
        return self._outputs
