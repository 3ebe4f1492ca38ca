"""Whole tensors out of the parts that ranks hold, whatever axes cut them, each put together on one rank only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from paceline.distributed.process_group import Group
from paceline.distributed.torch_private import local_shape_and_offset
from paceline.parallelism.mesh import local_tensor


class Region(NamedTuple):
    """Offset and shape of a part within its whole tensor."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        return tuple(slice(first, first + size) for first, size in zip(self.offset, self.shape, strict=True))


@dataclass(frozen=True)
class TensorChunk:
    """One message of a part of a tensor; equal tags mean the same tensor on both ends."""

    name: str
    tag: int
    source: int
    target: int
    place: Region


@torch.no_grad()
def whole_tensors(tensors: Mapping[str, Tensor], owners: Mapping[str, int], group: Group) -> dict[str, Tensor]:
    """Return, whole, the tensors that this rank owns.

    Collective: every rank passes what it holds of the model, in parts on all ranks or on none. An owner holds at least a part.
    """
    places = {name: place_of(tensor) for name, tensor in tensors.items() if isinstance(tensor, DTensor)}
    held = group.all_gather_object(places) if places else []
    found = {name: whole_like(tensor) for name, tensor in tensors.items() if owners[name] == group.rank}
    mine = [piece for piece in pieces(held, owners) if group.rank in (piece.source, piece.target)]
    sends = [
        dist.P2POp(dist.isend, local_tensor(tensors[piece.name]).contiguous(), piece.target, tag=piece.tag)
        for piece in mine
        if piece.target != group.rank
    ]
    received = {piece: torch.empty_like(found[piece.name][piece.place.slices]).contiguous() for piece in mine if piece.source != group.rank}
    receives = [dist.P2POp(dist.irecv, buffer, piece.source, tag=piece.tag) for piece, buffer in received.items()]
    if places:
        group.transfer(sends + receives)
    for piece in mine:
        if piece.target == group.rank:
            found[piece.name][piece.place.slices] = received[piece] if piece in received else local_tensor(tensors[piece.name])
    return found


def pieces(held: Sequence[Mapping[str, Region]], owners: Mapping[str, int]) -> list[TensorChunk]:
    """Return the chunks that each owner needs, in one order for all ranks. Of replicas the owner's own part is used, then the first
    rank's."""
    found = []
    for tag, name in enumerate(sorted(set().union(*held))):
        owner = owners[name]
        ranks = [owner, *(rank for rank in range(len(held)) if rank != owner)]
        sources: dict[Region, int] = {}
        for rank in ranks:
            place = held[rank].get(name)
            if place is not None and 0 not in place.shape:
                sources.setdefault(place, rank)
        found += [TensorChunk(name, tag, source, owner, place) for place, source in sources.items()]
    return found


def place_of(tensor: DTensor) -> Region:
    shape, offset = local_shape_and_offset(tensor)
    return Region(offset, shape)


def whole_like(tensor: Tensor) -> Tensor:
    """Room for all of it, where it is in parts."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=local_tensor(tensor).device) if isinstance(tensor, DTensor) else tensor
