"""Data parallelism that is the same to the last bit on any number of ranks: gradients are added up in one fixed tree.

Each rank adds up the whole subtrees in its contiguous range of micro-batches, then everything lies end to end in flat buffers
that are cut into as many slices as there are ranks. Every rank sends each peer that peer's slice of its subtree sums, finishes the tree
for its own slice, and sends the result round. With powers of two this moves what a reduce-scatter and an all-gather move;
with uneven shares a rank sends a few subtree sums instead of one. A world of one takes the same way, with nobody to talk to.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from distributed.process_group import Group
from parallelism.plan import Deal
from parallelism.running_statistics import RunningStatistics
from parallelism.tree import Node, TreeSum, frontier


class Reproducible:
    """See `Wrapped`. Micro-batches must come in the order of the rank's share."""

    def __init__(self, model: nn.Module, deal: Deal, group: Group) -> None:
        self.module = model
        self._deal = deal
        self._statistics = RunningStatistics(model, deal.micro_batches)
        self._parameters = sorted((p for p in model.parameters() if p.requires_grad), key=lambda parameter: str(parameter.dtype))
        self._flats = flat_buffers([*self._parameters, *self._statistics.averaged], deal, group)
        self._communication_seconds = 0.0
        self._begin_step()

    def _begin_step(self) -> None:
        self._sums: TreeSum[list[Tensor]] = TreeSum(self._deal.micro_batches, add_lists)
        self._leaf = self._deal.own.first

    @contextlib.contextmanager
    def accumulate(self, *, final: bool) -> Iterator[None]:
        if self._leaf == self._deal.own.first:
            self._statistics.begin_step()
        self._statistics.rewind()
        yield
        self._sums.put(Node(0, self._leaf), [*map(take_gradient, self._parameters), *self._statistics.changes()])
        self._leaf += 1
        if final:
            self._finish()

    def _finish(self) -> None:
        started = time.perf_counter()
        for flat in self._flats:
            flat.reduce([value for _, value in self._sums.pending])
        views = [view for flat in self._flats for view in flat.views]
        for parameter, view in zip(self._parameters, views, strict=False):
            parameter.grad = view
        self._statistics.apply(views[len(self._parameters) :])
        self._begin_step()
        self._communication_seconds = time.perf_counter() - started if self._deal.ranks > 1 else 0.0

    def exposed_communication(self, backward_ended: float) -> float:
        return self._communication_seconds

    def settle_buffers(self) -> None:
        """They are everyone's already."""


def take_gradient(parameter: nn.Parameter) -> Tensor:
    """Out of the parameter, without a copy: backward leaves a tensor of its own where it finds none."""
    gradient, parameter.grad = parameter.grad, None
    return torch.zeros_like(parameter) if gradient is None else gradient


@torch.no_grad()
def add_lists(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
    torch._foreach_add_(left, right)
    return left


def flat_buffers(tensors: Sequence[Tensor], deal: Deal, group: Group) -> list[FlatBuffer]:
    """One for each run of equal data types."""
    flats, first = [], 0
    for _, run in itertools.groupby(tensors, key=lambda tensor: tensor.dtype):
        members = list(run)
        flats.append(FlatBuffer(members, first, deal, group))
        first += len(members)
    return flats


class FlatBuffer:
    """Tensors of one data type, row-major, end to end, cut into one slice for each rank."""

    def __init__(self, tensors: Sequence[Tensor], first: int, deal: Deal, group: Group) -> None:
        self._deal, self._group = deal, group
        self._members = slice(first, first + len(tensors))
        self._elements = sum(tensor.numel() for tensor in tensors)
        self._slice = -(-self._elements // deal.ranks)
        self._frontiers = [frontier(deal.of(rank), deal.micro_batches) for rank in range(deal.ranks)]
        own, like = self._frontiers[deal.rank], tensors[0]
        # One per subtree of our own; the first one ends up with the result.
        self._packed = [torch.zeros(self._slice * deal.ranks, dtype=like.dtype, device=like.device) for _ in own]
        self._received = {
            peer: [torch.empty(self._slice, dtype=like.dtype, device=like.device) for _ in self._frontiers[peer]] for peer in self._peers
        }
        pieces = torch.split(self._packed[0][: self._elements], [tensor.numel() for tensor in tensors])
        self.views = [piece.view(tensor.shape) for piece, tensor in zip(pieces, tensors, strict=True)]

    @property
    def _peers(self) -> list[int]:
        return [rank for rank in range(self._deal.ranks) if rank != self._deal.rank]

    @torch.no_grad()
    def reduce(self, sums: Sequence[list[Tensor]]) -> None:
        """`sums`: all tensors' sums for each subtree of our own. Afterwards `views` hold the sum over all micro-batches."""
        for packed, tensors in zip(self._packed, sums, strict=True):
            torch.cat([tensor.reshape(-1) for tensor in tensors[self._members]], out=packed[: self._elements])
        if self._peers:
            self._exchange_subtrees()
            self._finish_own_slice()
            self._gather_slices()

    def _cut(self, flat: Tensor, rank: int) -> Tensor:
        return flat[rank * self._slice : (rank + 1) * self._slice]

    def _exchange_subtrees(self) -> None:
        sends = [
            dist.P2POp(dist.isend, self._cut(packed, peer), peer, tag=number)
            for peer in self._peers
            for number, packed in enumerate(self._packed)
        ]
        receives = [
            dist.P2POp(dist.irecv, buffer, peer, tag=number)
            for peer, buffers in self._received.items()
            for number, buffer in enumerate(buffers)
        ]
        self._group.transfer(sends + receives)

    def _finish_own_slice(self) -> None:
        result = self._cut(self._packed[0], self._deal.rank)
        tree: TreeSum[Tensor] = TreeSum(self._deal.micro_batches, Tensor.add_)
        for rank, nodes in enumerate(self._frontiers):
            mine = rank == self._deal.rank
            values = [self._cut(packed, rank) for packed in self._packed] if mine else self._received[rank]
            for node, value in zip(nodes, values, strict=True):
                tree.put(node, value)
        result.copy_(tree.total)

    def _gather_slices(self) -> None:
        flat = self._packed[0]
        own = self._cut(flat, self._deal.rank)
        sends = [dist.P2POp(dist.isend, own, peer) for peer in self._peers]
        self._group.transfer(sends + [dist.P2POp(dist.irecv, self._cut(flat, peer), peer) for peer in self._peers])
