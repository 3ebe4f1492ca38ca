"""What torch's CPU allocator gave out and took back while something ran, whichever thread did it.

The allocator tells the profiler of what the profiled thread does, and then how much is out in all. What gloo's and our waiting threads free is
in that sum only while the allocator keeps its table of blocks (`torch_private.keep_table_of_blocks`).
What another thread both takes and gives back between two allocations of this one is not seen.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.profiler import profile

from paceline.distributed import torch_private


@dataclass(frozen=True)
class MemoryUse:
    """Bytes, beside what was there before."""

    peak: int
    retained: int  # when it was done; negative where more was given back


def measure_memory(run: Callable[[], object]) -> MemoryUse:
    """Run `run`, and return the bytes that torch's CPU allocator gave out for it, whichever thread asked."""
    torch_private.keep_table_of_blocks()
    gc.collect()  # what ran before may have left cycles, which would be given back in the middle
    with profile(profile_memory=True) as recorded:
        read_total()
        run()
        read_total()
    assert recorded.kineto_results is not None
    _, before, *during, _, after = totals(recorded.kineto_results.experimental_event_tree())
    return MemoryUse(max([before, *during]) - before, after - before)


def read_total() -> None:
    """Record the allocator's total by allocating and freeing one block: the allocator reports nothing in between, and other threads'
    changes are in the total."""
    torch.empty(1)


def totals(events: Iterable[Any]) -> list[int]:
    """Return the allocated bytes after each allocation and each free, in order of time."""
    ordered = sorted(allocations(events), key=lambda event: int(event.start_time_ns))
    return [int(event.extra_fields.total_allocated) for event in ordered]


def allocations(events: Iterable[Any]) -> Iterator[Any]:
    """Yield the events of CPU allocations and frees, which are negative allocations."""
    for event in events:
        if torch_private.is_allocation(event) and event.extra_fields.device.type == "cpu":
            yield event
        yield from allocations(event.children)
