"""The micro-batches of a step as a pipeline asks for them, and stand-ins for the model at the pipeline's first and last stage."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch import Tensor, nn

from paceline.parallelism.pipelines.chain import UnsplittableModelError


class Work(Protocol):
    """The micro-batches of a step, by index. Methods are called in the order in which a stage computes the micro-batches."""

    @property
    def scale(self) -> float:
        """The factor, a power of two, that losses are multiplied by before backward."""
        ...

    def rows(self, index: int) -> int:
        """Return the number of samples of a micro-batch."""
        ...

    def batch(self, index: int) -> Any:
        """Seed all randomness for a micro-batch and fetch it. Called on the ranks of the first and the last stage."""
        ...

    def loss(self, model: nn.Module, index: int, batch: Any) -> Tensor:
        """Return the micro-batch's part of the mean loss over the global batch.

        Calls `model` exactly once, with one tensor, and draws no random numbers before that.
        """
        ...

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context for the forward pass."""
        ...


class StageInput(nn.Module):
    """Stands in for the model, to find out what the loss calls it with."""

    def forward(self, inputs: Tensor) -> Tensor:
        raise _Entered(inputs)


class _Entered(Exception):
    def __init__(self, inputs: Tensor) -> None:
        self.inputs = inputs


def inputs_of(work: Work, index: int, batch: Any) -> Tensor:
    """Return the tensor that the loss of a micro-batch calls the model with. Raises `UnsplittableModelError` if it does not call the
    model.
    """
    try:
        work.loss(StageInput(), index, batch)
    except _Entered as entered:
        return entered.inputs
    raise UnsplittableModelError("the loss does not call the model that it is given; in a pipeline it must call it once, with one tensor")


class StageOutput(nn.Module):
    """Stands in for the model, and returns the outputs of the last stage."""

    def __init__(self, outputs: Tensor) -> None:
        super().__init__()
        self._outputs = outputs

    def forward(self, inputs: Tensor) -> Tensor:
        return self._outputs
