"""Bytes that a rank sends to the others of its generation, by the axis of the mesh along which they go.

Counted where they are handed over, by the algorithm that carries them. Of n ranks each sends, in the mean over them,

    2 (n - 1) / n x s   of an all-reduce of s bytes, round a ring (Patarasuk and Yuan 2009)
    (n - 1) x s         of a gather of parts of s bytes, or of a reduce-scatter into them
    s                   of a transfer of s bytes

gloo's all-reduce and gather go round rings; our reduce-scatter sends each part to its owner. A tree of NCCL's comes to the same mean; a switch
that adds up by itself saves half. Headers and packets that are sent again come on top.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch.distributed as dist
from torch import Tensor

#: Along no axis, between all ranks: losses, requests and norms.
WORLD = "world"


class Sent(NamedTuple):
    """By one rank in one step."""

    by_axis: dict[str, float]  # bytes
    overlapped: float | None  # seconds in which something was under way while the rank computed; None: nobody tells


NOTHING = Sent({}, None)


class Traffic:
    """Of one rank in one generation. Whatever is sent is started by one thread at a time, so that no lock is needed."""

    def __init__(self, axes: Iterable[str] = ()) -> None:
        """`axes`: those of which `lap` tells even if nothing was sent along them."""
        self._sent = dict.fromkeys(axes, 0.0)
        self._unseen: set[str] = set()

    def add(self, axis: str, size: float) -> None:
        self._sent[axis] = self._sent.get(axis, 0.0) + size

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """What is sent within is no part of a step."""
        sent = self._sent.copy()
        yield
        self._sent = sent

    def leave_out(self, axis: str) -> None:
        """Part of what goes along `axis` is sent by others, who do not tell: a part would pass for the whole."""
        self._unseen.add(axis)

    def lap(self) -> dict[str, float]:
        """Bytes by axis, since this was asked last."""
        sent, self._sent = self._sent, dict.fromkeys(self._sent, 0.0)
        return {axis: size for axis, size in sent.items() if axis not in self._unseen}


def of_all_reduce(values: Tensor, ranks: int) -> float:
    return 2 * (ranks - 1) / ranks * values.nbytes


def of_gather(part: Tensor, ranks: int) -> float:
    """Also of a reduce-scatter of which each rank gets a tensor like `part`."""
    return float((ranks - 1) * part.nbytes)


def of_transfer(operations: Iterable[dist.P2POp]) -> float:
    return float(sum(operation.tensor.nbytes for operation in operations if operation.op is dist.isend))
