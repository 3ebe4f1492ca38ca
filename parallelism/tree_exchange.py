"""Sum tensors over the micro-batches of a step in the fixed tree, over one rank's and then over all replicas': the same bits on any
number.

Each rank sums the whole subtrees among its leaves and packs them into flat buffers, cut into as many slices as there are replicas. It
sends each peer that peer's slice of its sums, finishes the tree for its own slice, and sends the result to all. For powers of two this
moves as much as a reduce-scatter and an all-gather; with uneven shares a rank sends a few sums of subtrees instead of one, at most about
2 log2(s) times as much for s leaves. A single replica runs the same code without transfers. The exchange starts after the last backward:
on gloo it would compete with backward for the same cores.

Memory, in sizes of all tensors, with V leaves: up to log2(V) + 1 pending sums on one rank, about 2 log2(s) + 1 for an uneven share of s
leaves, plus one packed copy per subtree and the peers' slices: 5 with V = 8 on one rank, 4.5 on two, under 3 on eight.
`gradient_copies.in_tree` counts it and the plan shows it.

Sums must never alias what is sent or what the optimizer reads: they may be kept when a step is interrupted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.distributed.process_group import Group
from paceline.distributed.torch_private import add_to_each
from paceline.parallelism.data_parallel import Sums
from paceline.parallelism.plan import MicroBatchAssignment
from paceline.parallelism.tree import TreeNode, TreeSum, frontier


class TreeExchange:
    """Sums the tensors of all leaves of a step: on each replica the whole subtrees among its leaves, then the rest of the tree between
    replicas.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._assignment: MicroBatchAssignment | None = None
        self._flats: list[FlatBuffer] = []

    @property
    def leaves(self) -> int:
        """The number of leaves of the step's tree."""
        return self._sums.leaves

    def begin_step(self, assignment: MicroBatchAssignment, like: Callable[[], Sequence[Tensor]], sums: Sums) -> None:
        """Begin a step. `assignment`: of leaves to replicas. `like`: makes one leaf's tensors, those of one data type side by side.

        `sums`: sums of subtrees that are there already.
        """
        if assignment != self._assignment:  # the first step, or the one after an interrupted step
            self._flats.clear()  # free the old ones before new ones are allocated
            self._flats = flat_buffers(like(), assignment, self._group)
        self._assignment = assignment
        self._sums = TreeSum(assignment.micro_batches, add_lists, sums)

    def put(self, leaf: int, tensors: list[Tensor]) -> None:
        """Add one leaf's tensors."""
        self._sums.put(TreeNode(0, leaf), tensors)

    def finish_step(self) -> list[Tensor]:
        """Return the sums over all leaves of all replicas; they are valid until the next step. Collective over the replicas."""
        for flat in self._flats:
            flat.reduce([value for _, value in self._sums.from_left_to_right])
        return [view for flat in self._flats for view in flat.views]

    def release_memory(self) -> None:
        """Free all buffers and sums."""
        self._assignment = None
        self._flats.clear()
        self._sums = TreeSum(0, add_lists)


@torch.no_grad()
def add_lists(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
    """Add each tensor of `right` to the one of `left`, in place, and return `left`."""
    add_to_each(left, right)
    return left


def flat_buffers(tensors: Sequence[Tensor], assignment: MicroBatchAssignment, group: Group) -> list[FlatBuffer]:
    """Return one flat buffer for each run of tensors of one data type."""
    flats, first = [], 0
    for _, run in itertools.groupby(tensors, key=lambda tensor: tensor.dtype):
        members = list(run)
        flats.append(FlatBuffer(members, first, assignment, group))
        first += len(members)
    return flats


class FlatBuffer:
    """Tensors of one data type, row-major, end to end, cut into one slice for each replica."""

    def __init__(self, tensors: Sequence[Tensor], first: int, assignment: MicroBatchAssignment, group: Group) -> None:
        self._assignment, self._group = assignment, group
        axis_group = group.axis_groups.get("replicate")
        self._replicas = axis_group.ranks if axis_group else range(assignment.ranks)  # ranks of the world
        self._process_group = axis_group.process_group if axis_group else None  # None: the world's
        self._members = slice(first, first + len(tensors))
        self._elements = sum(tensor.numel() for tensor in tensors)
        self._slice = -(-self._elements // assignment.ranks)
        self._frontiers = [frontier(share, assignment.micro_batches) for share in assignment.shares]
        like = tensors[0]
        # One for each of this rank's subtrees, at least one; the first one receives the result.
        buffers = [torch.zeros(self._slice * assignment.ranks, dtype=like.dtype, device=like.device) for _ in self._own or (None,)]
        self._packed, self._result = buffers[: len(self._own)], buffers[0]
        self._received = {
            peer: [torch.empty(self._slice, dtype=like.dtype, device=like.device) for _ in self._frontiers[peer]] for peer in self._peers
        }
        pieces = torch.split(self._result[: self._elements], [tensor.numel() for tensor in tensors])
        self.views = [piece.view(tensor.shape) for piece, tensor in zip(pieces, tensors, strict=True)]

    @property
    def _own(self) -> tuple[TreeNode, ...]:
        return self._frontiers[self._assignment.rank]

    @property
    def _peers(self) -> list[int]:
        return [rank for rank in range(self._assignment.ranks) if rank != self._assignment.rank]

    @torch.no_grad()
    def reduce(self, sums: Sequence[list[Tensor]]) -> None:
        """Exchange and sum; afterwards `views` hold the sum over all leaves. Collective over the replicas.

        `sums`: for each of this rank's subtrees the sums of all tensors, which are copied.
        """
        for packed, tensors in zip(self._packed, sums, strict=True):
            torch.cat([tensor.reshape(-1) for tensor in tensors[self._members]], out=packed[: self._elements])
        if self._peers:
            self._exchange_subtrees()
            self._finish_own_slice()
            self._gather_slices()

    def _slice_of(self, flat: Tensor, rank: int) -> Tensor:
        return flat[rank * self._slice : (rank + 1) * self._slice]

    def _exchange_subtrees(self) -> None:
        sends = [
            self._transfer(dist.isend, self._slice_of(packed, peer), peer, tag=number)
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
        result = self._slice_of(self._result, self._assignment.rank)
        tree: TreeSum[Tensor] = TreeSum(self._assignment.micro_batches, Tensor.add_)
        for rank, nodes in enumerate(self._frontiers):
            mine = rank == self._assignment.rank
            values = [self._slice_of(packed, rank) for packed in self._packed] if mine else self._received[rank]
            for node, value in zip(nodes, values, strict=True):
                tree.put(node, value)
        result.copy_(tree.total)

    def _gather_slices(self) -> None:
        own = self._slice_of(self._result, self._assignment.rank)
        sends = [self._transfer(dist.isend, own, peer) for peer in self._peers]
        receives = [self._transfer(dist.irecv, self._slice_of(self._result, peer), peer) for peer in self._peers]
        self._group.transfer(sends + receives, along="replicate")

    def _transfer(self, way: Any, tensor: Tensor, peer: int, tag: int = 0) -> dist.P2POp:
        """Return an operation in the axis group's own process group: the world's stops where a rank outside the axis group has died."""
        return dist.P2POp(way, tensor, self._replicas[peer], self._process_group, tag)
