"""One stage of a pipeline: its passes over one micro-batch after the other, in any order that a schedule asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from parallelism.chain import Unit


@dataclass
class Passing:
    """A micro-batch between its forward and the end of its backward."""

    inputs: Tensor
    outputs: Tensor
    gradient: Tensor | None = None
    groups: list[dict[str, Any]] | None = None  # torch's, of parameters by the place in the graph where their gradients begin


class Stage:
    """Gradients are added up in the parameters."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units = units
        unique = {id(parameter): parameter for unit in units for parameter in unit.parameters}
        self.parameters = list(unique.values())
        self._learning = [parameter for parameter in self.parameters if parameter.requires_grad]
        self._passing: dict[int, Passing] = {}

    def forward(self, index: int, inputs: Tensor, *, gradient: bool, head: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """What micro-batch `index` becomes here; `head` makes a loss of it, on the last stage. `gradient`: the stage before waits for one."""
        inputs = inputs.detach().requires_grad_(gradient and torch.is_grad_enabled())
        outputs = inputs
        for unit in self.units:
            outputs = unit.run(outputs)
        outputs = outputs if head is None else head(outputs)
        if torch.is_grad_enabled():
            self._passing[index] = Passing(inputs, outputs)
        return outputs.detach()

    def backward(self, index: int, gradient: Tensor | None) -> Tensor | None:
        """The gradient of the inputs, if someone waits for it. `gradient`: of the outputs; None where they are the loss, or nothing behind learns."""
        passing = self._passing.pop(index)
        if passing.outputs.requires_grad:
            torch.autograd.backward(passing.outputs, gradient)
        return passing.inputs.grad

    def backward_input(self, index: int, gradient: Tensor | None) -> Tensor | None:
        """The same without the gradients of parameters, for which `backward_weight` comes later. Where nobody waits, nothing happens yet."""
        passing = self._passing[index]
        passing.gradient = gradient
        if not passing.inputs.requires_grad:
            return None
        gradients = None if gradient is None else [gradient]
        found, passing.groups = stage_backward_input([own_tensor(passing)], gradients, [passing.inputs], iter(self._learning))
        return found[0]

    def backward_weight(self, index: int) -> None:
        passing = self._passing.pop(index)
        if passing.groups is not None:
            stage_backward_weight(iter(self._learning), passing.groups)
        elif passing.outputs.requires_grad:
            torch.autograd.backward(passing.outputs, passing.gradient)

    def drop(self) -> None:
        """What a step that broke off has left."""
        self._passing.clear()


def own_tensor(passing: Passing) -> Tensor:
    """torch detaches in place what it has gone back through, which a view does not allow."""
    if passing.outputs._is_view():
        passing.outputs = passing.outputs.clone()
    return passing.outputs
