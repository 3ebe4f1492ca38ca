"""Sums of gradients over rings: through all replicas, or within machines and between them."""

from __future__ import annotations

from dataclasses import replace

from paceline.distributed.collectives.ring import Ring, Segment
from paceline.distributed.collectives.tensors import TensorValues
from paceline.distributed.collectives.within import WithinMachine
from paceline.distributed.reduction import ExactReduction, GradientBucket, GradientPiece, Reduction, ReductionState


class RingSum(ExactReduction):
    """The sum over one ring."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring

    def sum(self, bucket: GradientBucket) -> None:
        values = TensorValues(bucket.values)
        self._ring.all_reduce(values, bucket.step)
        values.write_back()


class WithinSum(ExactReduction):
    """The sum over the ranks of one machine alone."""

    def __init__(self, local: WithinMachine) -> None:
        self._local = local

    def sum(self, bucket: GradientBucket) -> None:
        self._local.reduce_scatter(bucket.values, bucket.step)
        self._local.all_gather(bucket.values, bucket.step)


class HierarchicalSum:
    """Sums within each machine, then between machines, then shares the result within each machine.

    Each rank sums its own segment with the ranks that have its place on the other machines, so that every byte crosses a machine's link once, and all
    ranks of a machine use the link together (as in NVIDIA's NCCL and Horovod's hierarchical all-reduce). Between machines the sum may be a compressed
    one: what it leaves out belongs to the segment.
    """

    def __init__(self, local: WithinMachine, across: Reduction) -> None:
        """`local`: this machine's ranks. `across`: sums over the ranks with this one's place on the other machines."""
        self._local, self._across = local, across

    def sum(self, bucket: GradientBucket) -> None:
        own = self._local.reduce_scatter(bucket.values, bucket.step)
        if own.last > own.first:
            self._across.sum(part_of(bucket, own))
        self._local.all_gather(bucket.values, bucket.step)

    def commit(self) -> None:
        self._across.commit()

    def state(self) -> ReductionState:
        return self._across.state()

    def load_state(self, state: ReductionState) -> None:
        self._across.load_state(state)


def part_of(bucket: GradientBucket, segment: Segment) -> GradientBucket:
    """Return the elements of a segment as a bucket of their own: a view, with the pieces that are in it, whole or in part."""
    return replace(bucket, values=bucket.values[segment.first : segment.last], pieces=_within(bucket, segment))


def _within(bucket: GradientBucket, segment: Segment) -> list[GradientPiece]:
    found = []
    for piece in bucket.pieces:
        first, last = max(piece.offset, segment.first), min(piece.offset + piece.length, segment.last)
        if first < last:
            begin = piece.first + first - piece.offset
            found.append(replace(piece, offset=first - segment.first, length=last - first, first=begin))
    return found
