"""Measure how long communication was in progress while this rank computed: communication that costs its step no time.

As with the time that a rank only waits, the delay of a slower rank is included. Point-to-point transfers are not counted: a receive that
was posted early waits for the computation of a peer, not for the wire, and the ends of sends that are waited for together are not
observed one by one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from torch.futures import Future


class Overlap:
    """Accumulates the seconds of overlap. The training thread and the threads that see a collective end report to it."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._under_way, self._waits = 0, False
        self._seconds, self._since = 0.0, clock()

    def follow(self, work: Future[Any]) -> None:
        """Count `work`, which has just been started, as in progress until it is done."""
        with self._lock:
            self._advance()
            self._under_way += 1
        work.add_done_callback(self._ended)

    def _ended(self, work: Future[Any]) -> None:
        with self._lock:
            self._advance()
            self._under_way -= 1

    def set_waiting(self, waiting: bool) -> None:
        """Record whether the training thread waits for communication, so that it computes nothing."""
        if self._under_way == 0:  # without a lock: only the training thread starts communication
            self._waits = waiting
            return
        with self._lock:
            self._advance()
            self._waits = waiting

    def lap(self) -> float:
        """Return the seconds of overlap since the last call of `lap`."""
        with self._lock:
            self._advance()
            seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _advance(self) -> None:
        before, self._since = self._since, self._clock()
        if self._under_way and not self._waits:
            self._seconds += self._since - before
