"""Tensors added up over the micro-batches of a step in the fixed tree, over one rank's and then over the replicas': the same bits on any number.

Each rank adds up the whole subtrees among its leaves, then everything lies end to end in flat buffers that are cut into as many slices as there are
replicas. Every rank sends each peer that peer's slice of its subtree sums, finishes the tree for its own slice, and sends the result round.
With powers of two this moves what a reduce-scatter and an all-gather move; with uneven shares a rank sends a few subtree sums instead of
one, at most about 2 log2(s) times as much for a share of s. One replica alone takes the same way, with nobody to talk to. The exchange
starts after the last backward: on gloo it would compete with it for the same cores.

Memory, in sizes of all tensors, with V leaves: up to log2(V) + 1 pending sums on one rank, about 2 log2(s) + 1 for an uneven share of
s, plus one packed copy per subtree and the peers' slices; 5 with V = 8 on one rank, 4.5 on two, under 3 on eight.
`gradient_copies.in_tree` counts it and the plan shows it.

Sums must never alias what is sent or what the optimizer reads: of a step that breaks off they may be kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from distributed.process_group import Group
from parallelism.data_parallel import Sums
from parallelism.plan import Deal
from parallelism.tree import Node, TreeSum, frontier


class TreeExchange:
    """Tensors of each leaf of a step, added up: on each replica the whole subtrees among its leaves, then the rest of the tree between them."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._deal: Deal | None = None
        self._flats: list[FlatBuffer] = []

    @property
    def leaves(self) -> int:
        return self._sums.leaves

    def begin_step(self, deal: Deal, like: Callable[[], Sequence[Tensor]], sums: Sums) -> None:
        """`deal`: of leaves to replicas. `like`: one leaf's tensors, of which those of one data type lie side by side."""
        if deal != self._deal:  # the first step, or the one after a step that was broken off
            self._flats.clear()  # before there are others
            self._flats = flat_buffers(like(), deal, self._group)
        self._deal = deal
        self._sums = TreeSum(deal.micro_batches, add_lists, sums)

    def put(self, leaf: int, tensors: list[Tensor]) -> None:
        self._sums.put(Node(0, leaf), tensors)

    def finish_step(self) -> list[Tensor]:
        """The sums over all leaves, until the next step's."""
        for flat in self._flats:
            flat.reduce([value for _, value in self._sums.from_left_to_right])
        return [view for flat in self._flats for view in flat.views]

    def let_go(self) -> None:
        """Of all memory."""
        self._deal = None
        self._flats.clear()
        self._sums = TreeSum(0, add_lists)


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
    """Tensors of one data type, row-major, end to end, cut into one slice for each replica."""

    def __init__(self, tensors: Sequence[Tensor], first: int, deal: Deal, group: Group) -> None:
        self._deal, self._group = deal, group
        line = group.lines.get("replicate")
        self._replicas = line.ranks if line else range(deal.ranks)  # ranks of the world
        self._process_group = line.process_group if line else None  # None: the world's
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
            self._transfer(dist.isend, self._cut(packed, peer), peer, tag=number)
            for peer in self._peers
            for number, packed in enumerate(self._packed)
        ]
        receives = [
            self._transfer(dist.irecv, buffer, peer, tag=number)
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
        sends = [self._transfer(dist.isend, own, peer) for peer in self._peers]
        receives = [self._transfer(dist.irecv, self._cut(self._result, peer), peer) for peer in self._peers]
        self._group.transfer(sends + receives, along="replicate")

    def _transfer(self, way: Any, tensor: Tensor, peer: int, tag: int = 0) -> dist.P2POp:
        """In the line's own group: the world's stands still where a rank beyond the line has died."""
        return dist.P2POp(way, tensor, self._replicas[peer], self._process_group, tag)
