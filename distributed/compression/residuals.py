"""Error feedback: what a rank has not sent of its gradients is added to those of the next step (Seide et al. 2014; Karimireddy et al. 2019).

They are kept by parameter, so that they outlive buckets, generations and plans.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from paceline.distributed.reduction import GradientPiece, parts_of

#: What tells one piece: the parameter, its first element and their number.
PieceKey = tuple[str, int, int]


class Residuals:
    """The residuals of one rank, fp32. What `put` gives counts once it is committed."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}  # by parameter, flat; zero where nothing is left out
        self._new: dict[PieceKey, Tensor] = {}
        self._elements: dict[str, int] = {}  # of each parameter

    def add_to(self, values: Tensor, pieces: Sequence[GradientPiece]) -> None:
        """Add the residuals of `pieces`, which lie end to end in `values` (n), in place."""
        for piece, part in zip(pieces, torch.split(values, [piece.length for piece in pieces]), strict=True):
            if piece.name in self._kept:
                part.add_(self._part_of(piece, part.device))

    def corrected(self, values: Tensor, pieces: Sequence[GradientPiece]) -> Tensor:
        """Return `pieces` of a bucket's `values` with their residuals added, end to end (n), fp32."""
        found = torch.empty(sum(piece.length for piece in pieces), dtype=torch.float32, device=values.device)
        rooms = torch.split(found, [piece.length for piece in pieces])
        for piece, part, room in zip(pieces, parts_of(values, pieces), rooms, strict=True):
            if piece.name in self._kept:
                torch.add(part, self._part_of(piece, part.device), out=room)
            else:
                room.copy_(part)
        return found

    def _part_of(self, piece: GradientPiece, device: torch.device) -> Tensor:
        return self._kept[piece.name][piece.first : piece.first + piece.length].to(device)

    def put(self, values: Tensor, pieces: Sequence[GradientPiece]) -> None:
        """Remember `values` (n), fp32, as the residuals of `pieces`. They are kept, not copied."""
        for piece, part in zip(pieces, torch.split(values, [piece.length for piece in pieces]), strict=True):
            self._new[key_of(piece)] = part
            self._elements[piece.name] = math.prod(piece.shape)

    def commit(self) -> None:
        """Let what was put since the last commit take the place of what was remembered."""
        for (name, first, length), part in self._new.items():
            if length == self._elements[name]:
                self._kept[name] = part
            else:
                self._whole(name)[first : first + length] = part
        self._new = {}

    def _whole(self, name: str) -> Tensor:
        if name not in self._kept:
            self._kept[name] = torch.zeros(self._elements[name])
        return self._kept[name]

    def by_parameter(self) -> dict[str, Tensor]:
        """Return copies of the residuals of each parameter on the host, flat, fp32; zero where none is kept."""
        return {name: part.to("cpu", copy=True) for name, part in self._kept.items()}

    def load(self, residuals: Mapping[str, Tensor]) -> None:
        """Add `residuals`, flat by parameter, to what is remembered."""
        self._new = {}
        for name, part in residuals.items():
            self._kept[name] = self._kept[name] + part.to(self._kept[name].device) if name in self._kept else part.clone()


def key_of(piece: GradientPiece) -> PieceKey:
    return piece.name, piece.first, piece.length


def deal_out(residuals: Sequence[Mapping[str, Tensor]], ranks: int, rank: int) -> dict[str, Tensor]:
    """Return what rank `rank` of `ranks` takes over of the residuals of the ranks of another world, so that their sum stays what it was."""
    found: dict[str, Tensor] = {}
    for each in residuals[rank::ranks]:
        for name, part in each.items():
            found[name] = found[name] + part if name in found else part.clone()
    return found
