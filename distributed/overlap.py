"""How long something was under way between ranks while this one computed: communication that costs its step no time.

As with time that a rank only waits, a slower rank's delay is part of it. Transfers between two ranks do not count: a receive that was asked for
early waits for a peer's computing, not for the wire, and nobody sees sends end that are waited for together.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from torch.futures import Future


class Overlap:
    """Told by the training thread and by those that see something end."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._under_way, self._waits = 0, False
        self._seconds, self._since = 0.0, clock()

    def follow(self, work: Future[Any]) -> None:
        """It has just begun, and nobody waits for it yet."""
        with self._lock:
            self._turn()
            self._under_way += 1
        work.add_done_callback(self._ended)

    def _ended(self, work: Future[Any]) -> None:
        with self._lock:
            self._turn()
            self._under_way -= 1

    def waits(self, waits: bool) -> None:
        """The training thread has nothing to compute until something is done; or it goes on."""
        if self._under_way == 0:  # nobody else can end that: only the training thread begins anything
            self._waits = waits
            return
        with self._lock:
            self._turn()
            self._waits = waits

    def lap(self) -> float:
        """Seconds since this was asked last."""
        with self._lock:
            self._turn()
            seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _turn(self) -> None:
        before, self._since = self._since, self._clock()
        if self._under_way and not self._waits:
            self._seconds += self._since - before
