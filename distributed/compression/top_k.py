"""Sums of the largest gradients only, with error feedback: what is not sent now is added to the next step's (Lin et al. 2018, Deep Gradient Compression)."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.distributed.axis_groups import AxisGroup
from paceline.distributed.compression.compressible import CompressedSum
from paceline.distributed.compression.options import Threshold
from paceline.distributed.compression.residuals import Residuals
from paceline.distributed.compression.sparse import largest
from paceline.distributed.reduction import GradientPiece, parts_of


class TopK(CompressedSum):
    """Each rank sends the share `ratio` of its elements, as values and indices, to all others, which add them rank by rank: the same bits everywhere."""

    def __init__(self, group: AxisGroup, ratio: float, threshold: Threshold) -> None:
        super().__init__(group, Residuals())
        self._ratio, self._threshold = ratio, threshold

    def _sum(self, values: Tensor, pieces: list[GradientPiece]) -> bool:
        corrected = self.residuals.corrected(values, pieces)
        indices = largest(corrected, self._ratio, self._threshold, self.step)
        sent = corrected.index_select(0, indices)
        counts = self._counts(indices.numel() if torch.isfinite(sent.sum()) else -1)  # what is not finite is among the largest
        if min(counts) < 0:
            return False
        corrected.index_fill_(0, indices, 0.0)
        self.residuals.put(corrected, pieces)
        self._add_up(values, pieces, self._gathered(sent, indices, counts))
        return True

    def _counts(self, own: int) -> list[int]:
        """Return the number of elements that each rank sends, -1 from one whose gradients are not finite."""
        counts = torch.empty(self.group.size, dtype=torch.int64)
        self.group.all_gather(counts, torch.tensor([own]))
        return [int(count) for count in counts]

    def _gathered(self, sent: Tensor, indices: Tensor, counts: list[int]) -> list[tuple[Tensor, Tensor]]:
        """Return what each rank sends: elements, and their indices."""
        width = max(counts)
        message = torch.zeros(2 * width)
        message[: sent.numel()] = sent
        message[width : width + sent.numel()] = indices.to(torch.int32).view(torch.float32)
        found = torch.empty(self.group.size * 2 * width)
        self.group.all_gather(found, message)
        rows = zip(counts, found.view(self.group.size, 2, width), strict=True)
        return [(elements[:count], places[:count].view(torch.int32)) for count, (elements, places) in rows]

    def _add_up(self, values: Tensor, pieces: list[GradientPiece], gathered: list[tuple[Tensor, Tensor]]) -> None:
        """Replace `pieces` of `values` by the sum of what was gathered, rank by rank."""
        lengths = torch.tensor([piece.length for piece in pieces])
        ends = lengths.cumsum(0)
        shifts = torch.tensor([piece.offset for piece in pieces]) - (ends - lengths)  # from the pieces end to end to the bucket
        total = values if values.dtype == torch.float32 else torch.zeros_like(values, dtype=torch.float32)
        for part in parts_of(total, pieces):
            part.zero_()
        for elements, places in gathered:
            total.index_add_(0, (places + shifts[torch.bucketize(places, ends, right=True)]).to(total.device), elements.to(total.device))
        if total is not values:
            for part, found in zip(parts_of(values, pieces), parts_of(total, pieces), strict=True):
                part.copy_(found)
