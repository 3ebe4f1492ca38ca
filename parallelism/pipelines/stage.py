"""One stage of a pipeline: its forward and backward passes over micro-batches, in any order that a schedule asks for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.parallelism.pipelines.accumulator import GradientAccumulator
from paceline.parallelism.pipelines.chain import Chain
from paceline.parallelism.pipelines.deferred_weight_grads import DeferredWeightGrad, Product
from paceline.parallelism.plan import MicroBatchAssignment


@dataclass
class InFlightMicroBatch:
    """A micro-batch between its forward pass and the end of its backward pass in one stage."""

    inputs: Tensor
    outputs: Tensor | None  # None: backward has run, except for deferred weight gradients
    deferred: list[Product] | None  # filled by backward; None: the stage before needs no gradient, so nothing is deferred
    gradient: Tensor | None = None  # of the outputs, until backward has run


class Stage:
    """A stage of the model on this rank. `chain` keeps the stage's parameters for the life of the pipeline."""

    def __init__(self, chain: Chain, deferred: DeferredWeightGrad, accumulator: GradientAccumulator) -> None:
        """`deferred`: defers the weight gradients that `backward_input` leaves to `backward_weight`. `accumulator`: how gradients are
        added up.
        """
        self.outputs = chain
        self.units, self.parameters = chain.units, list(chain.parameters())
        self._deferred, self.accumulator = deferred, accumulator
        self._in_flight: dict[int, InFlightMicroBatch] = {}

    def begin_step(self, assignment: MicroBatchAssignment) -> None:
        """Begin a step and drop what an interrupted step has left."""
        self._in_flight.clear()
        self.accumulator.begin_step(assignment)

    def forward(self, index: int, inputs: Tensor, *, gradient: bool, head: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Run the forward pass of micro-batch `index` and return its outputs, or its loss where `head` computes one, on the last stage.

        `gradient`: the stage before needs the gradient of `inputs`.
        """
        inputs = inputs.detach().requires_grad_(gradient and torch.is_grad_enabled())
        deferred: list[Product] | None = [] if inputs.requires_grad else None
        learns = torch.is_grad_enabled()
        with self.accumulator.forward(index) if learns else contextlib.nullcontext(), self._deferred.collecting(deferred):
            outputs: Tensor = self.outputs(inputs)
            outputs = outputs if head is None else head(outputs)
        if learns:
            self._in_flight[index] = InFlightMicroBatch(inputs, outputs, deferred)
        return outputs.detach()

    def backward(self, index: int, gradient: Tensor | None) -> Tensor | None:
        """Run the whole backward pass of a micro-batch and return the gradient of its inputs, if the stage before needs it.

        `gradient`: of the outputs; None where they are the loss, or no later stage is trained.
        """
        found = self.backward_input(index, gradient)
        self.backward_weight(index)
        return found

    def backward_input(self, index: int, gradient: Tensor | None) -> Tensor | None:
        """Run the backward pass without what is deferred, and return the gradient of the inputs; `backward_weight` computes the rest.

        If the stage before needs no gradient, nothing is computed yet.
        """
        in_flight = self._in_flight[index]
        in_flight.gradient = gradient
        if in_flight.inputs.requires_grad:
            with self.accumulator.backward(index):
                self._run_backward(in_flight)
        return in_flight.inputs.grad

    def backward_weight(self, index: int) -> None:
        """Compute the deferred weight gradients of a micro-batch and finish it."""
        in_flight = self._in_flight.pop(index)
        with self.accumulator.backward(index):
            self._run_backward(in_flight)
            while in_flight.deferred:
                in_flight.deferred.pop(0).add()
        self.accumulator.done(index)

    def _run_backward(self, in_flight: InFlightMicroBatch) -> None:
        """Run autograd's backward for a micro-batch. A second call does nothing: the first one releases the outputs."""
        outputs, gradient, in_flight.outputs, in_flight.gradient = in_flight.outputs, in_flight.gradient, None, None
        if outputs is not None and outputs.requires_grad:
            with self._deferred.collecting(in_flight.deferred):
                torch.autograd.backward(outputs, gradient)
