"""Sums within one machine, as a hierarchy needs them: each rank gets its own segment of the sum, and later the segments of all."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from paceline.distributed.axis_groups import AxisGroup
from paceline.distributed.collectives.ring import Ring, Segment
from paceline.distributed.collectives.tensors import TensorValues


class WithinMachine(Protocol):
    """The ranks of one machine, for the sums of a hierarchy. Calls are collective; `values` (n) are flat and row-major."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The world ranks of this machine."""
        ...

    def reduce_scatter(self, values: Tensor, step: int) -> Segment:
        """Sum `values`. Returns the segment of this rank, whose elements are the sum then, in place; the others are of no use."""
        ...

    def all_gather(self, values: Tensor, step: int) -> None:
        """Replace the elements of each segment by those of the rank that `reduce_scatter` left it with."""
        ...

    def close(self) -> None:
        """Free the other ranks from waiting for this one."""
        ...


class RingWithin:
    """Over a ring of Paceline's own, for tensors on the host."""

    def __init__(self, ring: Ring) -> None:
        self._ring, self.ranks = ring, ring.ranks

    def reduce_scatter(self, values: Tensor, step: int) -> Segment:
        return self._ring.reduce_scatter(TensorValues(values), step)

    def all_gather(self, values: Tensor, step: int) -> None:
        self._ring.all_gather(TensorValues(values), step)

    def close(self) -> None:
        self._ring.close()


class GroupWithin:
    """By the backend of a process group: NCCL, for tensors on GPUs. All segments but the last ones have one length."""

    def __init__(self, group: AxisGroup) -> None:
        self._group, self.ranks = group, group.ranks

    def reduce_scatter(self, values: Tensor, step: int) -> Segment:
        own = self._segment(values)
        found = values.new_empty(self._width(values))
        self._group.reduce_scatter(found, self._padded(values))
        values[own.first : own.last].copy_(found[: own.last - own.first])
        return own

    def all_gather(self, values: Tensor, step: int) -> None:
        own, width = self._segment(values), self._width(values)
        part = torch.nn.functional.pad(values[own.first : own.last], (0, width - (own.last - own.first)))
        found = values.new_empty(self._group.size * width)
        self._group.all_gather(found, part.contiguous())
        values.copy_(found[: values.numel()])

    def close(self) -> None:
        """Do nothing: the process group ends with the generation's."""

    def _width(self, values: Tensor) -> int:
        """Return the length of a segment: the elements divided by the ranks, rounded up."""
        return -(-values.numel() // self._group.size)

    def _segment(self, values: Tensor) -> Segment:
        elements, width = values.numel(), self._width(values)
        first = min(self._group.rank * width, elements)
        return Segment(first, min(first + width, elements))

    def _padded(self, values: Tensor) -> Tensor:
        return torch.nn.functional.pad(values, (0, self._group.size * self._width(values) - values.numel()))
