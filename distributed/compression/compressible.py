"""What the lossy reductions have in common: pieces that are always sent as they are, gradients that are not finite, and what is remembered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import groupby

import torch
from torch import Tensor

from paceline.distributed.axis_groups import AxisGroup
from paceline.distributed.compression.residuals import Residuals
from paceline.distributed.reduction import GradientBucket, Piece, ReductionState

RESIDUAL = "residual"


class CompressedSum(ABC):
    """A `Reduction` that leaves something out. Compressible pieces go through `_sum` in one flat tensor, all others in one exact sum."""

    def __init__(self, group: AxisGroup, residuals: Residuals) -> None:
        self.group, self.residuals = group, residuals
        self.step = 0  # that is summed: another one each time, and the same in a run that was paused

    @abstractmethod
    def _sum(self, values: Tensor, pieces: list[Piece]) -> Tensor | None:
        """Return the sum of `values` (n) over the ranks, n values that are equal on every rank, and put what was left out into `residuals`.

        None, on every rank, where the values of a rank are not finite: nothing is put then, and they are summed as they are. Collective.
        """

    def corrected(self, values: Tensor, pieces: list[Piece]) -> Tensor:
        """Return a copy of `values` (n) in fp32 with what was left out of the `pieces` before."""
        found = values.to(torch.float32, copy=True)
        self.residuals.add_to(found, pieces)
        return found

    def _compresses(self, piece: Piece) -> bool:
        return piece.compressible

    def sum(self, bucket: GradientBucket) -> None:
        self.step = bucket.step
        for compressible, run in groupby(sorted(bucket.pieces, key=self._compresses), key=self._compresses):
            pieces = list(run)
            parts = [bucket.values[piece.offset : piece.offset + piece.length] for piece in pieces]
            flat = torch.cat(parts) if len(pieces) < len(bucket.pieces) else bucket.values
            total = self._sum(flat, pieces) if compressible and flat.numel() else None
            if total is None:
                total = self.group.sum(flat)
            for part, found in zip(parts, torch.split(total, [piece.length for piece in pieces]), strict=True):
                part.copy_(found)

    def commit(self) -> None:
        self.residuals.commit()

    def state(self) -> ReductionState:
        return {RESIDUAL: self.residuals.by_parameter()}

    def load_state(self, state: ReductionState) -> None:
        self.residuals.load(state.get(RESIDUAL, {}))
