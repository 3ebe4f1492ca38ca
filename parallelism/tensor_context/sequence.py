"""How a sequence is sharded over ranks: which rank has which positions, and dropout that draws what one process would draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class UnevenSequenceError(ValueError):
    """A sequence cannot be divided into equal shards."""


class SequenceShard(Protocol):
    """One rank's shard of tensors (batch, time, ...)."""

    def local(self, global_shape: Tensor) -> Tensor:
        """Return this rank's shard of `global_shape`."""
        ...

    def global_shape(self, local: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the tensor of which a shard has the shape `local`."""
        ...


@dataclass(frozen=True)
class Contiguous:
    """Equal runs in order: rank 0 has the first positions. Sequence parallelism shards like this (Korthikanti et al. 2022)."""

    degree: int
    rank: int

    def local(self, global_shape: Tensor) -> Tensor:
        return global_shape.chunk(self.degree, dim=1)[self.rank]

    def global_shape(self, local: Sequence[int]) -> tuple[int, ...]:
        batch, time, *rest = local
        return (batch, time * self.degree, *rest)


@dataclass(frozen=True)
class HeadTail:
    """Twice as many chunks as ranks: each rank has one chunk from the front and its mirror image from the back.

    A causal mask gives late positions more work than early ones; with this layout every rank has the same (Dubey et al. 2024, section
    3.3.2). A shard is (2 * batch, chunk, ...), the rows of the front chunk first. Because chunks are rows of the batch, everything that
    looks at single positions, the loss included, is unchanged. `multiple`: a chunk's length must divide by it, to be sharded further.
    """

    degree: int
    rank: int
    multiple: int = 1

    @property
    def chunks(self) -> tuple[int, int]:
        """The numbers of this rank's chunks, in the order of the sequence."""
        return self.rank, 2 * self.degree - 1 - self.rank

    def chunk_length(self, time: int) -> int:
        """Return the length of a chunk of `time` tokens. Raises `UnevenSequenceError`."""
        parts = 2 * self.degree
        if time % (parts * self.multiple):
            unit = parts * self.multiple
            below, above = time // unit * unit, -(-time // unit) * unit
            ways = f"{below} or {above}" if below else f"{above}"
            raise UnevenSequenceError(
                f"{time} tokens cannot be cut into {parts} chunks whose length divides by {self.multiple}; use {ways}"
            )
        return time // parts

    def local(self, global_shape: Tensor) -> Tensor:
        """Return this rank's shard: (batch, time, ...) to (2 * batch, chunk, ...)."""
        chunks = torch.split(global_shape, self.chunk_length(global_shape.shape[1]), dim=1)
        return torch.cat([chunks[number] for number in self.chunks])

    def local_windows(self, windows: Tensor) -> Tensor:
        """Return this rank's chunks, each with the token after it, which its last position predicts: (batch, time + 1) to (2 * batch,
        chunk + 1).
        """
        length = self.chunk_length(windows.shape[1] - 1)
        chunks = windows.unfold(1, length + 1, length)  # (batch, 2 * degree, chunk + 1)
        return torch.cat([chunks[:, number] for number in self.chunks])

    def global_shape(self, local: Sequence[int]) -> tuple[int, ...]:
        rows, chunk, *rest = local
        return (rows // 2, 2 * self.degree * chunk, *rest)

    def positions(self, chunk: int, device: torch.device) -> Tensor:
        """Return the positions in the sequence of this rank's chunks of length `chunk`: (2, chunk)."""
        return torch.stack([torch.arange(number * chunk, (number + 1) * chunk, device=device) for number in self.chunks])


class SequenceDropout(nn.Module):
    """Dropout on a shard of a sequence: draws the mask of the whole sequence and keeps this rank's rows.

    With the same generator state on all ranks of the axes they drop what one process drops, to the last bit. Every rank pays for the
    random numbers of the whole sequence.
    """

    def __init__(self, p: float, shards: Sequence[SequenceShard]) -> None:
        """`shards`: in the order in which they were applied."""
        super().__init__()
        self.p = p
        self.shards = tuple(shards)

    def forward(self, hidden: Tensor) -> Tensor:
        if not self.training:
            return hidden
        shape: Sequence[int] = hidden.shape
        for shard in reversed(self.shards):
            shape = shard.global_shape(shape)
        kept = F.dropout(hidden.new_ones(shape), self.p)  # 0, or 1 / (1 - p)
        for shard in self.shards:
            kept = shard.local(kept)
        return hidden * kept.clone()  # a view of the whole mask would keep it all until backward
