"""Sums of the largest gradients only, with error feedback: what is not sent now is added to the next step's (Lin et al. 2018, Deep Gradient Compression)."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.distributed.axis_groups import AxisGroup
from paceline.distributed.compression.compressible import CompressedSum
from paceline.distributed.compression.options import Threshold
from paceline.distributed.compression.residuals import Residuals
from paceline.distributed.compression.sparse import largest
from paceline.distributed.reduction import Piece


class TopK(CompressedSum):
    """Each rank sends the share `ratio` of its elements, as values and indices, to all others, which add them rank by rank: the same bits everywhere."""

    def __init__(self, group: AxisGroup, ratio: float, threshold: Threshold) -> None:
        super().__init__(group, Residuals())
        self._ratio, self._threshold = ratio, threshold

    def _sum(self, values: Tensor, pieces: list[Piece]) -> Tensor | None:
        corrected = self.corrected(values, pieces)
        is_finite = bool(torch.isfinite(corrected.sum()))
        indices = largest(corrected, self._ratio, self._threshold, self.step) if is_finite else torch.empty(0, dtype=torch.int64)
        counts = self._counts(indices.numel() if is_finite else -1)
        if min(counts) < 0:
            return None
        sent = corrected[indices]
        corrected[indices] = 0.0
        self.residuals.put(corrected, pieces)
        return self._add_up(values.numel(), sent, indices, counts)

    def _counts(self, own: int) -> list[int]:
        """Return the number of elements that each rank sends, -1 from one whose gradients are not finite."""
        counts = torch.empty(self.group.size, dtype=torch.int64)
        self.group.all_gather(counts, torch.tensor([own]))
        return [int(count) for count in counts]

    def _add_up(self, elements: int, sent: Tensor, indices: Tensor, counts: list[int]) -> Tensor:
        width = max(counts)
        message = torch.zeros(2 * width)
        message[: sent.numel()] = sent
        message[width : width + sent.numel()] = indices.to(torch.int32).view(torch.float32)
        found = torch.empty(self.group.size * 2 * width)
        self.group.all_gather(found, message)
        total = torch.zeros(elements)
        for count, part in zip(counts, found.view(self.group.size, 2 * width), strict=True):
            total.index_add_(0, part[width : width + count].view(torch.int32).long(), part[:count])
        return total
