"""Error feedback: what a rank has not sent of its gradients is added to those of the next step (Seide et al. 2014; Karimireddy et al. 2019).

Residuals are kept for parts of parameters, as buckets have them, and told by parameter, so that they outlive buckets, generations and plans.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from paceline.distributed.reduction import Piece

#: What is kept of one piece: the parameter, its first element and their number.
PieceKey = tuple[str, int, int]


class Residuals:
    """The residuals of one rank, fp32. What `put` gives counts once it is committed."""

    def __init__(self) -> None:
        self._kept: dict[PieceKey, Tensor] = {}
        self._new: dict[PieceKey, Tensor] = {}
        self._loaded: dict[str, Tensor] = {}  # by parameter, whole: not asked for yet
        self._shapes: dict[str, tuple[int, ...]] = {}

    def add_to(self, values: Tensor, pieces: Sequence[Piece]) -> None:
        """Add the residuals of `pieces`, which lie end to end in `values` (n), in place."""
        for piece, part in zip(pieces, torch.split(values, [piece.length for piece in pieces]), strict=True):
            kept = self._take(piece)
            if kept is not None:
                part.add_(kept)

    def put(self, values: Tensor, pieces: Sequence[Piece]) -> None:
        """Remember `values` (n), fp32, as the residuals of `pieces`. They are kept, not copied."""
        for piece, part in zip(pieces, torch.split(values, [piece.length for piece in pieces]), strict=True):
            self._new[key_of(piece)] = part
            self._shapes[piece.name] = piece.shape

    def commit(self) -> None:
        """Let what was put since the last commit take the place of what was remembered."""
        self._kept |= self._new
        self._new = {}

    def _take(self, piece: Piece) -> Tensor | None:
        if key_of(piece) not in self._kept and piece.name in self._loaded:
            self._kept[key_of(piece)] = self._loaded[piece.name][piece.first : piece.first + piece.length]
        return self._kept.get(key_of(piece))

    def by_parameter(self) -> dict[str, Tensor]:
        """Return the residual of each parameter, flat, fp32; zero where none is kept."""
        found = dict(self._loaded)
        for name in {name for name, _, _ in self._kept}:  # a part of a parameter may be asked for, and the rest not yet
            found[name] = found[name].clone() if name in found else torch.zeros(math.prod(self._shapes[name]))
        for (name, first, length), part in self._kept.items():
            found[name][first : first + length] = part
        return found

    def load(self, residuals: Mapping[str, Tensor]) -> None:
        """Add `residuals`, flat by parameter, to what is remembered."""
        self._new = {}
        held = self.by_parameter()
        self._kept = {}
        self._loaded = {**held, **{name: held[name] + part if name in held else part.clone() for name, part in residuals.items()}}


def key_of(piece: Piece) -> PieceKey:
    return piece.name, piece.first, piece.length


def deal_out(residuals: Sequence[Mapping[str, Tensor]], ranks: int, rank: int) -> dict[str, Tensor]:
    """Return what rank `rank` of `ranks` takes over of the residuals of the ranks of another world, so that their sum stays what it was."""
    found: dict[str, Tensor] = {}
    for each in residuals[rank::ranks]:
        for name, part in each.items():
            found[name] = found[name] + part if name in found else part.clone()
    return found
