"""What torch's CPU allocator gave out and took back while something ran, whichever thread did it.

The allocator tells the profiler of what the profiled thread does, and then how much is out in all. What gloo's and our waiting threads free is
in that sum only while the allocator keeps its table of blocks, which a flag of its library asks for: torch has no other way to it.
What another thread both takes and gives back between two allocations of this one is not seen.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch._C._profiler import _EventType
from torch.autograd.profiler import profile

LIBRARY = "libc10.dylib" if sys.platform == "darwin" else "libc10.so"
FLAG = "FLAGS_caffe2_report_cpu_memory_usage"


@dataclass(frozen=True)
class Held:
    """Bytes, beside what was there before."""

    peak: int
    kept: int  # when it was done; negative where more was given back


def held_by(run: Callable[[], object]) -> Held:
    keep_table()
    gc.collect()  # what ran before may have left cycles, which would be given back in the middle
    with profile(profile_memory=True) as recorded:
        read_total()
        run()
        read_total()
    assert recorded.kineto_results is not None
    _, before, *during, _, after = totals(recorded.kineto_results.experimental_event_tree())
    return Held(max([before, *during]) - before, after - before)


def read_total() -> None:
    """By a block that is taken and given back, since the allocator tells of nothing else: what other threads did last is in its sums."""
    torch.empty(1)


@cache
def keep_table() -> None:
    """From now on, for good: blocks freed while it is off would stay in it. It takes about a microsecond of each allocation."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / LIBRARY))
    ctypes.c_bool.in_dll(library, FLAG).value = True


def totals(events: Iterable[Any]) -> list[int]:
    """Bytes that were out in all after each allocation and each free, in time."""
    ordered = sorted(allocations(events), key=lambda event: int(event.start_time_ns))
    return [int(event.extra_fields.total_allocated) for event in ordered]


def allocations(events: Iterable[Any]) -> Iterator[Any]:
    """Frees too, which are negative ones."""
    for event in events:
        if event.tag == _EventType.Allocation and event.extra_fields.device.type == "cpu":
            yield event
        yield from allocations(event.children)
