"""Whether the kernel's out-of-memory killer has struck lately. It counts for the whole machine, and what it ended days ago was no rank that dies now."""

from __future__ import annotations

import time
from collections.abc import Callable

from paceline.cluster.agent.processes import out_of_memory_kills

#: A killed process may take so long to give back its memory, and to end.
LOOK_SECONDS = 30.0


class MemoryKills:
    """The killer's count, looked at every LOOK_SECONDS while there are ranks. `count` returns it; `clock` is monotonic."""

    def __init__(self, count: Callable[[], int] = out_of_memory_kills, clock: Callable[[], float] = time.monotonic) -> None:
        self._count, self._clock = count, clock
        self._looked_at, self._kills = clock(), count()
        self._before = self._kills  # at the look before the last one

    @property
    def next_look(self) -> float:
        """The moment from which on `look` looks again."""
        return self._looked_at + LOOK_SECONDS

    def look(self) -> None:
        """Take note of the count, unless that was done lately. What was counted long before, while there were no ranks, is forgotten."""
        now = self._clock()
        if now >= self.next_look:
            kills = self._count()
            self._before = self._kills if now < self.next_look + LOOK_SECONDS else kills
            self._looked_at, self._kills = now, kills

    def has_struck(self) -> bool:
        """Whether the killer has struck since the look before the last one."""
        return self._count() > self._before
