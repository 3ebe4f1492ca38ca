"""How a sequence is cut over ranks: which rank has which positions, and dropout that draws what one process would draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class UnevenSequenceError(ValueError):
    """A sequence that cannot be cut into equal parts."""


class Cut(Protocol):
    """Of tensors (batch, time, ...)."""

    def own(self, whole: Tensor) -> Tensor:
        """This rank's part."""
        ...

    def whole(self, own: Sequence[int]) -> tuple[int, ...]:
        """The shape of what a part of shape `own` was cut from."""
        ...


@dataclass(frozen=True)
class Contiguous:
    """Equal runs in order: rank 0 has the first positions. What sequence parallelism does (Korthikanti et al. 2022)."""

    degree: int
    rank: int

    def own(self, whole: Tensor) -> Tensor:
        return whole.chunk(self.degree, dim=1)[self.rank]

    def whole(self, own: Sequence[int]) -> tuple[int, ...]:
        batch, time, *rest = own
        return (batch, time * self.degree, *rest)


@dataclass(frozen=True)
class HeadTail:
    """Twice as many chunks as ranks; each rank has one from the front and its mirror image from the back.

    A causal mask gives late positions more to do than early ones; so every rank has the same (Dubey et al. 2024, section 3.3.2).
    A part is (2 * batch, chunk, ...): the rows of the front chunk first. Chunks are rows of the batch, so all that looks at single
    positions, the loss included, need not know. `multiple` is what a chunk's length must divide by, to be cut further.
    """

    degree: int
    rank: int
    multiple: int = 1

    @property
    def chunks(self) -> tuple[int, int]:
        """Numbers of this rank's chunks, in the order of the sequence."""
        return self.rank, 2 * self.degree - 1 - self.rank

    def chunk_length(self, time: int) -> int:
        parts = 2 * self.degree
        if time % (parts * self.multiple):
            unit = parts * self.multiple
            below, above = time // unit * unit, -(-time // unit) * unit
            ways = f"{below} or {above}" if below else f"{above}"
            raise UnevenSequenceError(
                f"{time} tokens cannot be cut into {parts} chunks whose length divides by {self.multiple}; use {ways}"
            )
        return time // parts

    def own(self, whole: Tensor) -> Tensor:
        """(batch, time, ...) to (2 * batch, chunk, ...)."""
        chunks = torch.split(whole, self.chunk_length(whole.shape[1]), dim=1)
        return torch.cat([chunks[number] for number in self.chunks])

    def own_windows(self, windows: Tensor) -> Tensor:
        """(batch, time + 1) to (2 * batch, chunk + 1): each chunk with the token after it, which its last position predicts."""
        length = self.chunk_length(windows.shape[1] - 1)
        chunks = windows.unfold(1, length + 1, length)  # (batch, 2 * degree, chunk + 1)
        return torch.cat([chunks[:, number] for number in self.chunks])

    def whole(self, own: Sequence[int]) -> tuple[int, ...]:
        rows, chunk, *rest = own
        return (rows // 2, 2 * self.degree * chunk, *rest)

    def positions(self, chunk: int, device: torch.device) -> Tensor:
        """Where in the sequence this rank's chunks of that length stand: (2, chunk)."""
        return torch.stack([torch.arange(number * chunk, (number + 1) * chunk, device=device) for number in self.chunks])


class SequenceDropout(nn.Module):
    """Dropout on a part of a sequence: draws the mask of the whole and keeps the part's own rows.

    With the same generator state on all ranks of the axes they drop what one process drops, to the last bit. It costs the random
    numbers of the whole sequence on every rank.
    """

    def __init__(self, p: float, cuts: Sequence[Cut]) -> None:
        """`cuts` in the order in which they were made."""
        super().__init__()
        self.p = p
        self.cuts = tuple(cuts)

    def forward(self, hidden: Tensor) -> Tensor:
        if not self.training:
            return hidden
        shape: Sequence[int] = hidden.shape
        for cut in reversed(self.cuts):
            shape = cut.whole(shape)
        kept = F.dropout(hidden.new_ones(shape), self.p)  # 0, or 1 / (1 - p)
        for cut in self.cuts:
            kept = cut.own(kept)
        return hidden * kept.clone()  # a view of the whole mask would keep it all until backward
