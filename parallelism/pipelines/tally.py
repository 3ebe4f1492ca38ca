"""Where the gradients of a stage's micro-batches are added up, and its running statistics move: in place, or in the fixed tree.

In place, a parameter's gradient is added to what is there, pass by pass, in the order that the schedule has on this rank. In the tree each micro-batch's
gradients are its own until its way back is done; then they are put where the tree wants them, and so the sums are the same to the
last bit on any number of replicas, whichever of them has computed a micro-batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from torch import Tensor, nn

from distributed.process_group import Group
from parallelism.plan import Deal
from parallelism.reproducible import learning, take_gradient
from parallelism.running_statistics import RunningStatistics
from parallelism.tree_exchange import TreeExchange


class Tally:
    """In place: whoever has made the step adds up over the replicas."""

    def begin_step(self, deal: Deal) -> None:
        """Of the pipeline's micro-batches, which `index` counts below."""

    def forward(self, index: int) -> contextlib.AbstractContextManager[None]:
        """Around a forward pass that is to be gone back through."""
        return contextlib.nullcontext()

    def backward(self, index: int) -> contextlib.AbstractContextManager[None]:
        """Around each part of a micro-batch's way back."""
        return contextlib.nullcontext()

    def done(self, index: int) -> None:
        """A micro-batch has gone all the way back."""

    def finish_step(self) -> None:
        """After the last of all replicas."""


class InTree(Tally):
    """Over the replicas too: once a step is finished the gradients are everyone's."""

    def __init__(self, stage: nn.Module, parameters: Sequence[nn.Parameter], group: Group) -> None:
        self._parameters, self._statistics = learning(parameters), RunningStatistics(stage)
        self._tree = TreeExchange(group)
        self._found: dict[int, list[Tensor | None]] = {}  # gradients, by micro-batch that is on its way back
        self._changes: dict[int, list[Tensor]] = {}  # to running statistics, by micro-batch that is not done

    def begin_step(self, deal: Deal) -> None:
        self._found.clear()
        self._changes.clear()
        self._deal = deal
        self._tree.begin_step(deal, lambda: [*self._parameters, *self._statistics.changes(1)], {})
        self._statistics.begin_step()

    @contextlib.contextmanager
    def forward(self, index: int) -> Iterator[None]:
        yield
        self._changes[index] = self._statistics.changes(self._tree.leaves)
        self._statistics.rewind_aside()

    @contextlib.contextmanager
    def backward(self, index: int) -> Iterator[None]:
        for parameter, gradient in zip(self._parameters, self._found.pop(index, ()), strict=False):
            parameter.grad = gradient
        yield
        self._found[index] = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None

    def done(self, index: int) -> None:
        for parameter, gradient in zip(self._parameters, self._found.pop(index), strict=True):
            parameter.grad = gradient
        self._tree.put(self._deal.own[index], [*map(take_gradient, self._parameters), *self._changes.pop(index)])

    def finish_step(self) -> None:
        sums = self._tree.finish_step()
        for parameter, sum_ in zip(self._parameters, sums, strict=False):
            parameter.grad = sum_ if parameter.grad is None else parameter.grad + sum_  # one that is in two stages of this rank
        self._statistics.apply(sums[len(self._parameters) :], self._tree.leaves)
