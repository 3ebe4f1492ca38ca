"""One hash of a model's parameters and buffers: the same whatever world they were saved by, other where one bit is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor


def owners(names: Iterable[str], world_size: int) -> dict[str, int]:
    """By name, the rank whose share it is in."""
    return {name: place % world_size for place, name in enumerate(sorted(names))}


def of_share(tensors: Mapping[str, Tensor], rank: int, world_size: int) -> dict[str, str]:
    """The hashes of this rank's share of tensors that every rank has whole, so that all of them are hashed once."""
    return {name: of_tensor(tensors[name]) for name, owner in owners(tensors, world_size).items() if owner == rank}


def of_tensor(tensor: Tensor) -> str:
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
    digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def combined(shares: Iterable[Mapping[str, str]]) -> str:
    """Of the shares of all ranks, in the order of the names."""
    digests = {name: digest for share in shares for name, digest in share.items()}
    lines = "".join(f"{name} {digests[name]}\n" for name in sorted(digests))
    return hashlib.sha256(lines.encode()).hexdigest()
