"""Sums of gradients as products of two thin matrices, with error feedback (Vogels et al. 2019, PowerSGD)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from paceline.distributed.axis_groups import AxisGroup
from paceline.distributed.compression.compressible import RESIDUAL, CompressedSum
from paceline.distributed.compression.residuals import PieceKey, Residuals, key_of
from paceline.distributed.reduction import GradientPiece, ReductionState, parts_of

FACTOR = "power_sgd_factor"
_SEED = 20_190_531


class PowerSgd(CompressedSum):
    """One step of power iteration a training step, from the factors of the step before. All matrices of a bucket share two messages."""

    def __init__(self, group: AxisGroup, rank: int) -> None:
        super().__init__(group, Residuals())
        self._rank = rank
        self._factors: dict[PieceKey, Tensor] = {}  # (columns, rank), equal on every rank
        self._new: dict[PieceKey, Tensor] = {}
        self._whole: set[PieceKey] = set()  # those of whole parameters
        self._loaded: Mapping[str, Tensor] = {}  # of whole parameters

    def _compresses(self, piece: GradientPiece) -> bool:
        """Whether two factors are smaller than the matrix. A rank's shard of a parameter may be empty, and no matrix."""
        if not (piece.compressible and piece.length):
            return False
        rows, columns = matrix_shape(piece)
        return (rows + columns) * self._rank < rows * columns

    def _sum(self, values: Tensor, pieces: list[GradientPiece]) -> bool:
        corrected = self.residuals.corrected(values, pieces)
        matrices = matrices_in(corrected, pieces)
        projections = self._sum_together(
            [matrix @ self._factor(piece).to(matrix.device) for piece, matrix in zip(pieces, matrices, strict=True)]
        )
        if not all(bool(torch.isfinite(each.sum())) for each in projections):  # the same on every rank
            return False
        bases = [torch.linalg.qr(each).Q for each in projections]
        own = [matrix.T @ basis for matrix, basis in zip(matrices, bases, strict=True)]
        for matrix, basis, factor in zip(matrices, bases, own, strict=True):
            matrix.sub_(basis @ factor.T)  # what of this rank's own gradients is not in the sum
        self.residuals.put(corrected, pieces)  # before anything of it is sent: the others may commit a sum that this rank does not receive
        factors = self._sum_together(own)
        self._new |= {key_of(piece): factor for piece, factor in zip(pieces, factors, strict=True)}
        self._whole |= {key_of(piece) for piece in pieces if piece.is_whole}
        for part, basis, factor in zip(parts_of(values, pieces), bases, factors, strict=True):
            part.copy_((basis @ factor.T).view(-1))
        return True

    def _factor(self, piece: GradientPiece) -> Tensor:
        """The factor to begin with: the last step's, or random numbers that are the same on every rank."""
        found = self._factors.get(key_of(piece))
        if found is None and piece.is_whole:
            found = self._loaded.get(piece.name)
        if found is None or found.shape != (matrix_shape(piece)[1], self._rank):  # none yet, or of another rank
            found = torch.randn(matrix_shape(piece)[1], self._rank, generator=torch.Generator().manual_seed(_SEED))
        return found

    def _sum_together(self, tensors: list[Tensor]) -> list[Tensor]:
        """Sum tensors over the ranks in one message, and leave them as they are."""
        flat = self.group.sum(torch.cat([each.reshape(-1) for each in tensors]))
        parts = torch.split(flat, [each.numel() for each in tensors])
        return [part.view(each.shape) for part, each in zip(parts, tensors, strict=True)]

    def commit(self) -> None:
        super().commit()
        self._factors |= self._new
        self._new = {}

    def state(self) -> ReductionState:
        return {
            RESIDUAL: self.residuals.by_parameter(),
            # The iteration begins anew for parts of parameters, which another world divides otherwise.
            FACTOR: {**self._loaded, **{key[0]: factor.cpu() for key, factor in self._factors.items() if key in self._whole}},
        }

    def load_state(self, state: ReductionState) -> None:
        super().load_state(state)
        self._loaded, self._factors, self._new = state.get(FACTOR, {}), {}, {}


def matrix_shape(piece: GradientPiece) -> tuple[int, int]:
    """Return the rows and columns as which a piece is seen: a whole parameter's own, all axes but the first one flat; else nearly a square."""
    if piece.is_whole and len(piece.shape) > 1:
        return piece.shape[0], piece.length // piece.shape[0]
    rows = next(rows for rows in range(math.isqrt(piece.length), 0, -1) if piece.length % rows == 0)
    return rows, piece.length // rows


def matrices_in(values: Tensor, pieces: list[GradientPiece]) -> list[Tensor]:
    """Return views of the pieces that lie end to end in `values` (n), each as its matrix."""
    parts = torch.split(values, [piece.length for piece in pieces])
    return [part.view(matrix_shape(piece)) for piece, part in zip(pieces, parts, strict=True)]
