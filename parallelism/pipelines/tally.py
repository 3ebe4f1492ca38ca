"""How the gradients of a rank's stages are added up, and their running statistics move: in place, or in the fixed tree.

In place, a parameter's gradient is added to what is there, pass by pass, in the order that the schedule has on this rank, and then once over the
replicas. In the tree each micro-batch's gradients are its own until its way back is done; then they are put where the tree wants them, and so the
sums are the same to the last bit on any number of replicas, whichever of them has computed a micro-batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from distributed.process_group import Group
from parallelism.gradients import Lines, settle_gradients, sum_gradients
from parallelism.pipelines.chain import Chain
from parallelism.plan import Deal
from parallelism.reproducible import learning, or_zeros
from parallelism.running_statistics import RunningStatistics
from parallelism.tree_exchange import TreeExchange


class Tally:
    """Of one stage. This one leaves everything where it is."""

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


class InPlace:
    """Of a rank."""

    def __init__(self, chains: Mapping[int, Chain], lines: Lines) -> None:
        """`chains`: its stages by number; `lines`: of the world."""
        self.tallies = {stage: Tally() for stage in chains}
        self._chains, self._lines = tuple(chains.values()), lines
        self._learning = [each for each in nn.ModuleList(chains.values()).parameters() if each.requires_grad]

    def finish_step(self) -> None:
        """Every gradient is the sum of all replicas' afterwards, and of all that have seen apart what a parameter, or parts of it, was used on."""
        for parameter in self._learning:
            parameter.grad = or_zeros(parameter.grad, parameter)
        if "tensor" in self._lines and "shard" not in self._lines:  # FSDP has settled what it has cut
            settle_gradients(self._learning, self._lines["tensor"])
        sum_gradients(self._learning, self._lines)

    @torch.no_grad()
    def settle_buffers(self) -> None:
        """By their mean over the ranks with the same stages, as under plain data parallelism."""
        buffers = [buffer for chain in self._chains for buffer in chain.buffers()]
        for axis, line in self._lines.items():
            for buffer in buffers:
                if axis != "pipeline" and buffer.is_floating_point():
                    line.sum(buffer).div_(line.size)


class InTree:
    """The same, of a rank beside whose pipeline there are only replicas."""

    def __init__(self, chains: Mapping[int, Chain], group: Group) -> None:
        self.tallies = {stage: TreeTally(chain, group) for stage, chain in chains.items()}

    def finish_step(self) -> None:
        for tally in self.tallies.values():
            tally.finish_step()

    def settle_buffers(self) -> None:
        """They are everyone's already."""


class TreeTally(Tally):
    def __init__(self, chain: Chain, group: Group) -> None:
        self._parameters, self._statistics = learning(chain.parameters()), RunningStatistics(chain)
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
        gradients = map(or_zeros, self._found.pop(index), self._parameters)
        self._tree.put(self._deal.own[index], [*gradients, *self._changes.pop(index)])

    def finish_step(self) -> None:
        sums = self._tree.finish_step()
        for parameter, sum_ in zip(self._parameters, sums, strict=False):
            parameter.grad = sum_ if parameter.grad is None else parameter.grad + sum_  # one that is in two stages of this rank
        self._statistics.apply(sums[len(self._parameters) :], self._tree.leaves)
