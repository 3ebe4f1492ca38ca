"""What the lossy reductions have in common: pieces that are always sent as they are, gradients that are not finite, and what is remembered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import groupby

import torch
from torch import Tensor

from paceline.distributed.axis_groups import AxisGroup
from paceline.distributed.compression.residuals import Residuals
from paceline.distributed.reduction import GradientBucket, GradientPiece, ReductionState, parts_of

RESIDUAL = "residual"


class CompressedSum(ABC):
    """A `Reduction` that leaves something out. Compressible pieces of a bucket go through `_sum` together, all others through one exact sum."""

    def __init__(self, group: AxisGroup, residuals: Residuals) -> None:
        self.group, self.residuals = group, residuals
        self.step = 0  # that is summed: another one each time, and the same in a run that was paused

    @abstractmethod
    def _sum(self, values: Tensor, pieces: list[GradientPiece]) -> bool:
        """Replace `pieces` of a bucket's `values` by their sum over the ranks, equal on every rank, and put what was left out into `residuals`.

        False, on every rank, where the values of a rank are not finite: nothing is changed or put then, and they are summed as they are. Collective.
        """

    def _compresses(self, piece: GradientPiece) -> bool:
        return piece.compressible

    def sum(self, bucket: GradientBucket) -> None:
        self.step = bucket.step
        for compressible, run in groupby(sorted(bucket.pieces, key=self._compresses), key=self._compresses):
            pieces = list(run)
            if not (compressible and any(piece.length for piece in pieces) and self._sum(bucket.values, pieces)):
                self._sum_whole(bucket, pieces)

    def _sum_whole(self, bucket: GradientBucket, pieces: list[GradientPiece]) -> None:
        if len(pieces) == len(bucket.pieces):
            self.group.sum(bucket.values)
            return
        parts = parts_of(bucket.values, pieces)
        total = self.group.sum(torch.cat(parts))
        for part, found in zip(parts, torch.split(total, [piece.length for piece in pieces]), strict=True):
            part.copy_(found)

    def commit(self) -> None:
        self.residuals.commit()

    def state(self) -> ReductionState:
        return {RESIDUAL: self.residuals.by_parameter()}

    def load_state(self, state: ReductionState) -> None:
        self.residuals.load(state.get(RESIDUAL, {}))
