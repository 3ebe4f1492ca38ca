"""What a way to sum gradients over replicas offers, whatever it sends: the seam between algorithms, compression and the trainer.

A `Reduction` is made for one generation from the groups that it sends in. It is called bucket by bucket, in the same order on every rank, by one
thread that does nothing else; it may wait. What it leaves in the buckets is equal to the last bit on every rank, or replicas would drift apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from paceline.distributed.axis_groups import AxisGroup


@dataclass(frozen=True)
class GradientPiece:
    """The gradient of one parameter, or a part of it, inside a bucket."""

    name: str  # of the parameter, as in the model's state
    shape: tuple[int, ...]  # of the whole parameter
    offset: int  # first element in the bucket
    length: int  # elements in the bucket
    first: int = 0  # first element of the parameter, row-major; a bucket's slice may begin within a parameter
    compressible: bool = True  # False: norms, biases, embeddings and whatever the job excludes are always sent as they are

    @property
    def is_whole(self) -> bool:
        return self.length == math.prod(self.shape)


@dataclass(frozen=True)
class GradientBucket:
    """Gradients of one data type, end to end in one flat row-major buffer."""

    values: Tensor  # (n); a reduction replaces them by their sum over the ranks
    pieces: Sequence[GradientPiece]  # of `values`, in order, without gaps
    step: int  # from 1: the step that these gradients belong to


def parts_of(values: Tensor, pieces: Sequence[GradientPiece]) -> list[Tensor]:
    """Return views of `pieces` in a bucket's `values`."""
    return [values[piece.offset : piece.offset + piece.length] for piece in pieces]


#: What a reduction has to remember beyond a step, by the kind of it and by parameter, such as `residual`: {"blocks.0.mlp.weight": (n,)}.
ReductionState = Mapping[str, Mapping[str, Tensor]]


class Reduction(Protocol):
    """One way to sum gradients over the ranks of an axis group."""

    def sum(self, bucket: GradientBucket) -> None:
        """Replace the bucket's values by their sum over the ranks, in place. Collective. Raises as `AxisGroup.sum` does."""
        ...

    def commit(self) -> None:
        """Remember what the step's sums have left out: its update is applied. Without it the next step goes on from what was remembered before."""
        ...

    def state(self) -> ReductionState:
        """Return what this rank has to remember; empty where sums are exact. The tensors are on the host, and stay as they are."""
        ...

    def load_state(self, state: ReductionState) -> None:
        """Go on from `state`, which this rank has remembered, or which was taken over from a rank that has left."""
        ...


class ExactReduction:
    """The parts of `Reduction` that are equal for all sums that leave nothing out."""

    def commit(self) -> None:
        """Do nothing: nothing is left out."""

    def state(self) -> ReductionState:
        return {}

    def load_state(self, state: ReductionState) -> None:
        """Do nothing: what another reduction has remembered is added to no sum of this one."""


class BackendSum(ExactReduction):
    """The backend's own all-reduce."""

    def __init__(self, group: AxisGroup) -> None:
        self._group = group

    def sum(self, bucket: GradientBucket) -> None:
        self._group.sum(bucket.values)
