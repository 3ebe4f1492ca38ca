"""The memory that a rank's process holds now, and the most that it has held."""

from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Callable

import torch

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
KIBIBYTE = 1024
#: Between two looks at a GPU's allocator, which gathers all its statistics for one of them: a share of a short step that counts.
GPU_SECONDS = 0.25


class MemoryMeter:
    """Reads `memory_bytes` and `peak_memory_bytes` of one process: bytes allocated on its GPU, or resident in memory on a CPU.

    A GPU is asked a few times a second at most, and what it has said stands until then: its own peak misses nothing in between. On a CPU the
    peak includes that of the rank's spawner. Linux counts it less exactly than the memory of this moment, and may report a
    peak below it: the meter then takes what it has read itself.
    """

    def __init__(self, device: str) -> None:
        self._read: Callable[[], tuple[int, int]] = _AllocatedOnGpu() if device == "cuda" else _resident
        self._highest = 0

    def read(self) -> dict[str, float]:
        now, peak = self._read()
        self._highest = max(self._highest, now, peak)
        return {"memory_bytes": float(now), "peak_memory_bytes": float(self._highest)}


def _resident() -> tuple[int, int]:
    with open("/proc/self/statm", "rb") as file:
        pages = int(file.read().split()[1])
    return pages * PAGE_BYTES, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIBIBYTE


class _AllocatedOnGpu:
    """Bytes that are allocated now, and the most that were; not older than GPU_SECONDS."""

    def __init__(self) -> None:
        self._known, self._due_at = (0, 0), -math.inf

    def __call__(self) -> tuple[int, int]:
        if time.monotonic() >= self._due_at:
            # Straight from the allocator: torch's own functions flatten all its statistics to read one.
            found = torch.cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]
            self._known, self._due_at = (found["current"], found["peak"]), time.monotonic() + GPU_SECONDS
        return self._known
