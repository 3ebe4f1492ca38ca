"""Tensors of one data type end to end in one buffer, whose sums over the ranks are finished bucket by bucket.

A bucket is a run of whole tensors. Its sum takes two messages to each other rank: this rank's subtrees of that rank's slice of the bucket, and, once all
have come for its own slice, what they add up to. Nothing else has to wait for the second one, so that buckets can be exchanged while backward computes the
next ones. On a GPU, where messages have no tags and must be started in one order on every rank, there is one bucket.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from paceline.distributed.process_group import Group
from paceline.parallelism.plan import MicroBatchAssignment
from paceline.parallelism.tree import TreeSum, frontier

#: A buffer has about so many buckets: the first ones travel while backward computes the others, and each message costs some 100 us.
BUCKETS = 8
#: Buckets are not smaller than this, in bytes, but for the last one.
LEAST_BUCKET_BYTES = 1 << 20
#: More messages than one rank sends another for one bucket: a rank has at most about 2 log2(s) + 1 subtrees of s leaves.
TAGS = 128


class FlatBuffer:
    """Tensors of one data type, row-major, end to end. `views`: the tensors of the result."""

    def __init__(self, tensors: Sequence[Tensor], first: int, first_tag: int, assignment: MicroBatchAssignment, group: Group) -> None:
        """`first`: index of the first tensor among those of a leaf. `first_tag`: this one and TAGS for each bucket are for this buffer alone."""
        self.members = range(first, first + len(tensors))
        self.is_shared = assignment.ranks > 1
        self._frontiers = [frontier(share, assignment.micro_batches) for share in assignment.shares]
        own, like = self._frontiers[assignment.rank], tensors[0]
        offsets = [0, *torch.tensor([tensor.numel() for tensor in tensors]).cumsum(0).tolist()]
        # One for each of this rank's subtrees, at least one; the first one receives the result.
        buffers = [torch.zeros(offsets[-1], dtype=like.dtype, device=like.device) for _ in own or (None,)]
        self._packed, result = buffers[: len(own)], buffers[0]
        pieces = [result[start:end] for start, end in itertools.pairwise(offsets)]
        self.views = [piece.view(tensor.shape) for piece, tensor in zip(pieces, tensors, strict=True)]
        self._places = list(itertools.pairwise(offsets))
        self.buckets = [
            ExchangeBucket(
                range(first + start, first + end),
                [packed[offsets[start] : offsets[end]] for packed in self._packed],
                result[offsets[start] : offsets[end]],
                first_tag + number * TAGS,
                assignment,
                self._frontiers,
                group,
            )
            for number, (start, end) in enumerate(runs(tensors, 1 if like.is_cuda else BUCKETS))
        ]

    def pack(self, subtree: int, member: int, tensor: Tensor) -> None:
        """Copy one tensor of the sum of this rank's subtree number `subtree`; `member`: its index among those of a leaf."""
        start, end = self._places[member - self.members.start]
        self._packed[subtree][start:end].copy_(tensor.reshape(-1))

    @torch.no_grad()
    def pack_all(self, sums: Sequence[Sequence[Tensor]]) -> None:
        """Copy the sums of all tensors of a leaf, for each of this rank's subtrees."""
        for packed, tensors in zip(self._packed, sums, strict=True):
            torch.cat([tensors[member].reshape(-1) for member in self.members], out=packed)


def runs(tensors: Sequence[Tensor], buckets: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last index + 1 of runs of tensors, about `buckets` of them and none under LEAST_BUCKET_BYTES but the first one.

    They are filled from the last tensor on, which backward usually computes first.
    """
    least = max(LEAST_BUCKET_BYTES, sum(tensor.nbytes for tensor in tensors) / buckets)
    end, held = len(tensors), 0
    for start in range(len(tensors) - 1, -1, -1):
        held += tensors[start].nbytes
        if held >= least or start == 0:
            yield start, end
            end, held = start, 0


class ExchangeBucket:
    """A run of whole tensors in a flat buffer, cut into one slice for each replica. `members`: their indices among those of a leaf."""

    def __init__(
        self,
        members: range,
        packed: Sequence[Tensor],
        result: Tensor,
        first_tag: int,
        assignment: MicroBatchAssignment,
        frontiers: Sequence[Sequence[Any]],
        group: Group,
    ) -> None:
        self.members, self._packed, self._result, self._tag = members, packed, result, first_tag
        self._assignment, self._frontiers, self._group = assignment, frontiers, group
        axis_group = group.axis_groups.get("replicate")
        self._replicas = axis_group.ranks if axis_group else range(assignment.ranks)  # ranks of the world
        # Not the world's where there is another: it stops where a rank outside the axis group has died.
        self._process_group = axis_group.process_group if axis_group else group.process_group()
        self._size = -(-result.numel() // assignment.ranks)
        own = self._slice_of(result, assignment.rank)
        self._received = {peer: [torch.empty_like(own) for _ in frontiers[peer]] for peer in self._peers}

    @property
    def _peers(self) -> list[int]:
        return [rank for rank in range(self._assignment.ranks) if rank != self._assignment.rank]

    def start(self) -> Future[None]:
        """Start to sum what is packed over all leaves; once the future is done, the result is there. For CPU tensors."""
        return self._group.start_exchange(self._subtrees(), self._finish_own_slice, along="replicate")

    def reduce(self) -> None:
        """Sum what is packed over all leaves. Collective over the replicas."""
        self._group.transfer(self._subtrees(), along="replicate")
        self._group.transfer(self._finish_own_slice(), along="replicate")

    def _slice_of(self, flat: Tensor, rank: int) -> Tensor:
        return flat[rank * self._size : (rank + 1) * self._size]

    def _subtrees(self) -> list[dist.P2POp]:
        """Each peer gets its slice of this rank's subtrees; this rank gets all subtrees of its own slice."""
        sends = [
            self._transfer(dist.isend, self._slice_of(packed, peer), peer, number)
            for peer in self._peers
            for number, packed in enumerate(self._packed)
        ]
        receives = [
            self._transfer(dist.irecv, buffer, peer, number)
            for peer, buffers in self._received.items()
            for number, buffer in enumerate(buffers)
        ]
        return with_content(sends + receives)

    @torch.no_grad()
    def _finish_own_slice(self) -> list[dist.P2POp]:
        """Finish the tree for this rank's slice; all ranks get it, and this rank gets theirs."""
        own = self._slice_of(self._result, self._assignment.rank)
        tree: TreeSum[Tensor] = TreeSum(self._assignment.micro_batches, Tensor.add_)
        for rank, nodes in enumerate(self._frontiers):
            mine = rank == self._assignment.rank
            values = [self._slice_of(packed, rank) for packed in self._packed] if mine else self._received[rank]
            for node, value in zip(nodes, values, strict=True):
                tree.put(node, value)
        own.copy_(tree.total)
        sends = [self._transfer(dist.isend, own, peer, TAGS - 1) for peer in self._peers]
        receives = [self._transfer(dist.irecv, self._slice_of(self._result, peer), peer, TAGS - 1) for peer in self._peers]
        return with_content(sends + receives)

    def _transfer(self, way: Any, tensor: Tensor, peer: int, number: int) -> dist.P2POp:
        return dist.P2POp(way, tensor, self._replicas[peer], self._process_group, self._tag + number)


def with_content(operations: Sequence[dist.P2POp]) -> list[dist.P2POp]:
    """Leave out messages without content: of slices behind the end of a small bucket."""
    return [operation for operation in operations if operation.tensor.numel()]
