"""Data parallelism that is the same to the last bit on any number of ranks: gradients are added up in one fixed tree.

Each rank adds up the whole subtrees among its micro-batches, then everything lies end to end in flat buffers
that are cut into as many slices as there are ranks. Every rank sends each peer that peer's slice of its subtree sums, finishes the tree
for its own slice, and sends the result round. With powers of two this moves what a reduce-scatter and an all-gather move;
with uneven shares a rank sends a few subtree sums instead of one, at most about 2 log2(s) times as much for a share of s. A world of one takes
the same way, with nobody to talk to. The exchange starts after the last backward: on gloo it would compete with it for the same cores.

Memory, in sizes of all gradients, with V micro-batches: up to log2(V) + 1 pending sums on one rank, about 2 log2(s) + 1 for an uneven share of
s, plus one packed copy per subtree and the peers' slices; 5 with V = 8 on one rank, 4.5 on two, under 3 on eight (DDP: 1).
`gradient_copies.in_tree` counts it and the plan shows it.

A step that breaks off is not lost: the exchange copies, so the subtree sums stay what they were until the step is committed, and each depends on its
micro-batches alone. In the next generation they stay with who has them (`training.state.PartialStep`) and `deal_around` shares out what is
missing; the tree, and so the bits, are the same. With `reproducible: false` they live in DDP's buckets, which go with the group.
So sums must never alias what is sent or what the optimizer reads.
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
from parallelism.data_parallel import Sums, WholeModel
from parallelism.plan import Deal
from parallelism.running_statistics import RunningStatistics
from parallelism.tree import Node, TreeSum, frontier


class Reproducible(WholeModel):
    """See `Wrapped`. Micro-batches may come in any order; the sums are left as they were before the exchange."""

    def __init__(self, model: nn.Module, group: Group) -> None:
        self.module, self._group = model, group
        self._statistics = RunningStatistics(model)
        self._parameters = sorted((p for p in model.parameters() if p.requires_grad), key=lambda parameter: str(parameter.dtype))
        self._deal: Deal | None = None
        self._flats: list[FlatBuffer] = []

    def begin_step(self, deal: Deal, sums: Sums) -> None:
        if deal != self._deal:  # the first step, or the one after a step that was broken off
            self._flats.clear()  # before there are others
            self._flats = flat_buffers([*self._parameters, *self._statistics.changes(1)], deal, self._group)
        self._deal = deal
        self._statistics.begin_step()
        self._sums = TreeSum(deal.micro_batches, add_lists, sums)

    @contextlib.contextmanager
    def accumulate(self, index: int, *, final: bool) -> Iterator[None]:
        self._statistics.rewind()
        yield
        changes = self._statistics.changes(self._sums.leaves)
        self._sums.put(Node(0, index), [*map(take_gradient, self._parameters), *changes])

    def finish_step(self) -> float:
        started = time.perf_counter()
        for flat in self._flats:
            flat.reduce([value for _, value in self._sums.from_left_to_right])
        views = [view for flat in self._flats for view in flat.views]
        for parameter, view in zip(self._parameters, views, strict=False):
            parameter.grad = view
        self._statistics.apply(views[len(self._parameters) :], self._sums.leaves)
        return time.perf_counter() - started if self._group.world_size > 1 else 0.0

    def settle_buffers(self) -> None:
        """They are everyone's already."""

    def let_go(self) -> None:
        self._deal = None
        self._flats.clear()
        self._sums = TreeSum(0, add_lists)


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
        self._frontiers = [frontier(share, deal.micro_batches) for share in deal.shares]
        like = tensors[0]
        # One for each subtree of our own; the first one ends up with the result, also where there are none.
        buffers = [torch.zeros(self._slice * deal.ranks, dtype=like.dtype, device=like.device) for _ in self._own or (None,)]
        self._packed, self._result = buffers[: len(self._own)], buffers[0]
        self._received = {
            peer: [torch.empty(self._slice, dtype=like.dtype, device=like.device) for _ in self._frontiers[peer]] for peer in self._peers
        }
        pieces = torch.split(self._result[: self._elements], [tensor.numel() for tensor in tensors])
        self.views = [piece.view(tensor.shape) for piece, tensor in zip(pieces, tensors, strict=True)]

    @property
    def _own(self) -> tuple[Node, ...]:
        return self._frontiers[self._deal.rank]

    @property
    def _peers(self) -> list[int]:
        return [rank for rank in range(self._deal.ranks) if rank != self._deal.rank]

    @torch.no_grad()
    def reduce(self, sums: Sequence[list[Tensor]]) -> None:
        """`sums`: all tensors' sums for each subtree of our own, which are copied. Afterwards `views` hold the sum over all micro-batches."""
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
        self._group.transfer(sends + receives, along="replicate")

    def _finish_own_slice(self) -> None:
        result = self._cut(self._result, self._deal.rank)
        tree: TreeSum[Tensor] = TreeSum(self._deal.micro_batches, Tensor.add_)
        for rank, nodes in enumerate(self._frontiers):
            mine = rank == self._deal.rank
            values = [self._cut(packed, rank) for packed in self._packed] if mine else self._received[rank]
            for node, value in zip(nodes, values, strict=True):
                tree.put(node, value)
        result.copy_(tree.total)

    def _gather_slices(self) -> None:
        own = self._cut(self._result, self._deal.rank)
        sends = [dist.P2POp(dist.isend, own, peer) for peer in self._peers]
        receives = [dist.P2POp(dist.irecv, self._cut(self._result, peer), peer) for peer in self._peers]
        self._group.transfer(sends + receives, along="replicate")
