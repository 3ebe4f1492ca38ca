"""What a piece of work costs in processor time, whatever else the machine, or the garbage collector of a long run of tests, does meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable

TRIES = 5


def least_seconds(work: Callable[[], object]) -> float:
    """Return the processor seconds of this thread for `work`, the least of a few tries."""
    costs = []
    for _ in range(TRIES):
        before = time.thread_time()
        work()
        costs.append(time.thread_time() - before)
    return min(costs)
