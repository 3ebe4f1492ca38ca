"""Tensors of any data types, end to end in one buffer of bytes on the host: the payload of a message."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

#: Each tensor begins at a multiple of this, which every data type divides.
ALIGNMENT = 16


class ShardLayout:
    """Where tensors lie in a buffer: those like `tensors`, row-major, in this order."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._like = [(tensor.dtype, tuple(tensor.shape)) for tensor in tensors]
        self._offsets, end = [], 0
        for tensor in tensors:
            self._offsets.append(end)
            end += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
        self.size = end  # bytes

    def empty(self) -> Tensor:
        """Return a new buffer. Gaps between tensors are zeros, so that equal tensors have equal checksums."""
        return torch.zeros(self.size, dtype=torch.uint8)

    def views(self, buffer: Tensor) -> list[Tensor]:
        """Return the tensors of `buffer`, over its memory."""
        return [
            buffer[first : first + math.prod(shape) * dtype.itemsize].view(dtype).view(shape)
            for first, (dtype, shape) in zip(self._offsets, self._like, strict=True)
        ]

    @torch.no_grad()
    def pack(self, tensors: Sequence[Tensor], buffer: Tensor) -> Tensor:
        """Copy `tensors`, from any device, into `buffer` and return it."""
        for view, tensor in zip(self.views(buffer), tensors, strict=True):
            view.copy_(tensor)
        return buffer
