"""One hash of a model's parameters and buffers: the same whatever world they were saved by, other where one bit is."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

import torch
from torch import Tensor


def owners(held: Sequence[Collection[str]]) -> dict[str, int]:
    """By name, the rank whose share it is in: one of those that hold it, or a part of it. `held`: names by rank."""
    holders: dict[str, list[int]] = {}
    for rank, names in enumerate(held):
        for name in names:
            holders.setdefault(name, []).append(rank)
    return {name: holders[name][place % len(holders[name])] for place, name in enumerate(sorted(holders))}


def of_share(tensors: Mapping[str, Tensor], rank: int, world_size: int) -> dict[str, str]:
    """The hashes of this rank's share of tensors that every rank has whole, so that all of them are hashed once."""
    return {name: of_tensor(tensors[name]) for name, owner in owners([tensors] * world_size).items() if owner == rank}


def of_tensor(tensor: Tensor) -> str:
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
    digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def combined(shares: Iterable[Mapping[str, str]]) -> str:
    """Of the shares of all ranks, in the order of the names."""
    digests = {name: digest for share in shares for name, digest in share.items()}
    lines = "".join(f"{name} {digests[name]}\n" for name in sorted(digests))
    return hashlib.sha256(lines.encode()).hexdigest()
