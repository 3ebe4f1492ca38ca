"""The memory that a rank's process holds now, and the most that it has held."""

from __future__ import annotations

import os
import resource

import torch

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
KIBIBYTE = 1024


class MemoryMeter:
    """Reads `memory_bytes` and `peak_memory_bytes` of one process: bytes allocated on its GPU, or resident in memory on a CPU.

    On a CPU the peak includes that of the rank's spawner. Linux counts it less exactly than the memory of this moment, and may report a
    peak below it: the meter then takes what it has read itself.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._highest = 0

    def read(self) -> dict[str, float]:
        now, peak = _allocated_on_gpu() if self._device == "cuda" else _resident()
        self._highest = max(self._highest, now, peak)
        return {"memory_bytes": float(now), "peak_memory_bytes": float(self._highest)}


def _resident() -> tuple[int, int]:
    with open("/proc/self/statm", "rb") as file:
        pages = int(file.read().split()[1])
    return pages * PAGE_BYTES, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIBIBYTE


def _allocated_on_gpu() -> tuple[int, int]:
    """Straight from the allocator: torch's own functions flatten all its statistics to read one."""
    found = torch.cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]
    return found["current"], found["peak"]
