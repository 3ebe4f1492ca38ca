"""One stage of a pipeline: its passes over one micro-batch after the other, in any order that a schedule asks for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from parallelism.pipelines.chain import Chain
from parallelism.pipelines.put_off import Product, PutOff
from parallelism.pipelines.tally import Tally
from parallelism.plan import Deal


@dataclass
class Passing:
    """A micro-batch between its forward and the end of its backward."""

    inputs: Tensor
    outputs: Tensor | None  # None: gone back through, but for what was put off
    put_off: list[Product] | None  # filled on the way back; None: where nobody waits, nothing is put off
    gradient: Tensor | None = None  # of the outputs, until then


class Stage:
    """`chain` has its parameters for good."""

    def __init__(self, chain: Chain, put_off: PutOff, tally: Tally) -> None:
        """`put_off`: gradients of weights that `backward_input` leaves to `backward_weight`."""
        self.outputs = chain
        self.units, self.parameters = chain.units, list(chain.parameters())
        self._put_off, self.tally = put_off, tally
        self._passing: dict[int, Passing] = {}

    def begin_step(self, deal: Deal) -> None:
        """Without what a step that broke off has left."""
        self._passing.clear()
        self.tally.begin_step(deal)

    def forward(self, index: int, inputs: Tensor, *, gradient: bool, head: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """What micro-batch `index` becomes here; `head` makes a loss of it, on the last stage. `gradient`: the stage before waits for one."""
        inputs = inputs.detach().requires_grad_(gradient and torch.is_grad_enabled())
        put_off: list[Product] | None = [] if inputs.requires_grad else None
        learns = torch.is_grad_enabled()
        with self.tally.forward(index) if learns else contextlib.nullcontext(), self._put_off.collecting(put_off):
            outputs: Tensor = self.outputs(inputs)
            outputs = outputs if head is None else head(outputs)
        if learns:
            self._passing[index] = Passing(inputs, outputs, put_off)
        return outputs.detach()

    def backward(self, index: int, gradient: Tensor | None) -> Tensor | None:
        """The gradient of the inputs, if someone waits for it. `gradient`: of the outputs; None where they are the loss, or nothing behind learns."""
        found = self.backward_input(index, gradient)
        self.backward_weight(index)
        return found

    def backward_input(self, index: int, gradient: Tensor | None) -> Tensor | None:
        """The same without what is put off, for which `backward_weight` comes later. Where nobody waits, nothing happens yet."""
        passing = self._passing[index]
        passing.gradient = gradient
        if passing.inputs.requires_grad:
            with self.tally.backward(index):
                self._go_back(passing)
        return passing.inputs.grad

    def backward_weight(self, index: int) -> None:
        passing = self._passing.pop(index)
        with self.tally.backward(index):
            self._go_back(passing)
            while passing.put_off:
                passing.put_off.pop(0).add()
        self.tally.done(index)

    def _go_back(self, passing: Passing) -> None:
        """Once."""
        outputs, gradient, passing.outputs, passing.gradient = passing.outputs, passing.gradient, None, None
        if outputs is not None and outputs.requires_grad:
            with self._put_off.collecting(passing.put_off):
                torch.autograd.backward(outputs, gradient)
