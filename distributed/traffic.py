"""Count the bytes that a rank sends to other ranks of its generation, by axis of the mesh.

Bytes are counted where tensors are handed to the backend, by the algorithm that sends them. Of n ranks each sends, on average,

    2 (n - 1) / n x s   for an all-reduce of s bytes, in a ring (Patarasuk and Yuan 2009)
    (n - 1) x s         for an all-gather of shards of s bytes, or a reduce-scatter into them
    s                   for a point-to-point transfer of s bytes

gloo's all-reduce and all-gather use rings; our reduce-scatter sends each shard to its owner. NCCL's trees have the same average; a switch that reduces
by itself saves half. Headers and retransmissions come on top.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch.distributed as dist
from torch import Tensor

#: The key for traffic between all ranks: losses, requests and norms.
WORLD = "world"


class SentBytes(NamedTuple):
    """The bytes that one rank has sent in one step."""

    by_axis: dict[str, float]  # bytes
    overlapped: float | None  # seconds in which something was under way while the rank computed; None: not known


NOTHING = SentBytes({}, None)


class Traffic:
    """Counts what one rank sends in one generation. Any thread may add to it."""

    def __init__(self, axes: Iterable[str] = ()) -> None:
        """`axes`: the axes that `lap` reports even if nothing was sent along them."""
        self._sent = dict.fromkeys(axes, 0.0)
        self._excluded: set[str] = set()
        self._lock = threading.Lock()

    def add(self, axis: str, size: float) -> None:
        """Count `size` bytes for `axis`."""
        with self._lock:
            self._sent[axis] = self._sent.get(axis, 0.0) + size

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """Do not count what is sent inside the block: it belongs to no step."""
        sent = self._sent.copy()
        yield
        self._sent = sent

    def exclude(self, axis: str) -> None:
        """Leave `axis` out of the reports: torch sends part of its traffic by itself, and a partial count would look like the whole."""
        self._excluded.add(axis)

    def lap(self) -> dict[str, float]:
        """Return the bytes by axis since the last call of `lap`."""
        with self._lock:
            sent, self._sent = self._sent, dict.fromkeys(self._sent, 0.0)
        return {axis: size for axis, size in sent.items() if axis not in self._excluded}


def all_reduce_bytes(values: Tensor, ranks: int) -> float:
    """Return the bytes that a rank sends in an all-reduce of `values` over `ranks` ranks."""
    return 2 * (ranks - 1) / ranks * values.nbytes


def gather_bytes(part: Tensor, ranks: int) -> float:
    """Return the bytes that a rank sends in an all-gather of `part`, or in a reduce-scatter whose result is like `part`."""
    return float((ranks - 1) * part.nbytes)


def transfer_bytes(operations: Iterable[dist.P2POp]) -> float:
    """Return the bytes of the sends among `operations`."""
    return float(sum(operation.tensor.nbytes for operation in operations if operation.op is dist.isend))
