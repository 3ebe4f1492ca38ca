"""Whole tensors out of the parts that ranks hold, whatever axes cut them, each put together on one rank only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from distributed.process_group import Group
from parallelism.mesh import local_part


class Place(NamedTuple):
    """Of a part in its whole."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        return tuple(slice(first, first + size) for first, size in zip(self.offset, self.shape, strict=True))


@dataclass(frozen=True)
class Piece:
    """One message: the same tag is the same tensor on both ends."""

    name: str
    tag: int
    source: int
    target: int
    place: Place


@torch.no_grad()
def whole_tensors(tensors: Mapping[str, Tensor], owners: Mapping[str, int], group: Group) -> dict[str, Tensor]:
    """Those that this rank owns, whole. All ranks call this with what they hold of a model, in parts on all of them or on none; an owner holds a
    part at least."""
    places = {name: place_of(tensor) for name, tensor in tensors.items() if isinstance(tensor, DTensor)}
    held = group.gather(places) if places else []
    found = {name: whole_like(tensor) for name, tensor in tensors.items() if owners[name] == group.rank}
    mine = [piece for piece in pieces(held, owners) if group.rank in (piece.source, piece.target)]
    sends = [
        dist.P2POp(dist.isend, local_part(tensors[piece.name]).contiguous(), piece.target, tag=piece.tag)
        for piece in mine
        if piece.target != group.rank
    ]
    received = {piece: torch.empty_like(found[piece.name][piece.place.slices]).contiguous() for piece in mine if piece.source != group.rank}
    receives = [dist.P2POp(dist.irecv, buffer, piece.source, tag=piece.tag) for piece, buffer in received.items()]
    if places:
        group.transfer(sends + receives)
    for piece in mine:
        if piece.target == group.rank:
            found[piece.name][piece.place.slices] = received[piece] if piece in received else local_part(tensors[piece.name])
    return found


def pieces(held: Sequence[Mapping[str, Place]], owners: Mapping[str, int]) -> list[Piece]:
    """What each owner needs, in one order for all; of replicas the owner's own part counts, then the first rank's."""
    found = []
    for tag, name in enumerate(sorted(set().union(*held))):
        owner = owners[name]
        ranks = [owner, *(rank for rank in range(len(held)) if rank != owner)]
        sources: dict[Place, int] = {}
        for rank in ranks:
            place = held[rank].get(name)
            if place is not None and 0 not in place.shape:
                sources.setdefault(place, rank)
        found += [Piece(name, tag, source, owner, place) for place, source in sources.items()]
    return found


def place_of(tensor: DTensor) -> Place:
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return Place(tuple(offset), tuple(shape))


def whole_like(tensor: Tensor) -> Tensor:
    """Room for all of it, where it is in parts."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=local_part(tensor).device) if isinstance(tensor, DTensor) else tensor
