"""One hash of a model's parameters and buffers: independent of the world that saved them, and sensitive to every bit."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

import torch
from torch import Tensor


def owners(held: Sequence[Collection[str]]) -> dict[str, int]:
    """Return, by name, the rank that hashes each tensor: one of those that hold it, or a part of it. `held`: names by rank."""
    holders: dict[str, list[int]] = {}
    for rank, names in enumerate(held):
        for name in names:
            holders.setdefault(name, []).append(rank)
    return {name: holders[name][place % len(holders[name])] for place, name in enumerate(sorted(holders))}


def hash_tensor(tensor: Tensor) -> str:
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
    digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def combine_hashes(shares: Iterable[Mapping[str, str]]) -> str:
    """Combine the hashes of all ranks' shares, in the order of the names, into one."""
    digests = {name: digest for share in shares for name, digest in share.items()}
    lines = "".join(f"{name} {digests[name]}\n" for name in sorted(digests))
    return hashlib.sha256(lines.encode()).hexdigest()
