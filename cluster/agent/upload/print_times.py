"""When the bytes of an output were printed: its size is looked at often, and each look tells how much was there by then.

A rank writes straight to its file, so nobody sees a line at the moment it is printed. A line was printed by the first look that found it
whole, and not after the file was last written to, which is the time it gets: at most one look later than the truth, however long its
upload waits. Only of what was there before an agent's first look is less known: by when it was all printed.
"""

from __future__ import annotations

import bisect
import os
from pathlib import Path

#: Looks that are remembered: when there are more, every other one is forgotten.
MOST_LOOKS = 4_096


class PrintTimes:
    """The looks at one output whose lines are not acknowledged yet."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._sizes: list[int] = []
        self._times: list[float] = []

    def look(self, now: float) -> os.stat_result | None:
        """Note how much there is. Returns the facts of the file; None where it is not there, or cannot be seen, which tells nothing."""
        try:
            found = os.lstat(self._path)
        except OSError:
            return None
        if found.st_size > (self._sizes[-1] if self._sizes else 0):
            self._note(found, now)
        return found

    def _note(self, found: os.stat_result, now: float) -> None:
        self._sizes.append(found.st_size)
        # The rank may set this time to what it likes.
        self._times.append(min(now, max(found.st_mtime, self._times[-1] if self._times else 0.0)))
        if len(self._sizes) > MOST_LOOKS:
            del self._sizes[-2::-2], self._times[-2::-2]

    def by_when(self, end: int, now: float) -> float:
        """The time by which all bytes before `end` were printed."""
        index = bisect.bisect_left(self._sizes, end)
        return self._times[index] if index < len(self._times) else now

    def forget_before(self, offset: int) -> None:
        """Forget the looks that only tell of bytes before `offset`. The newest one stays, since time does not go back."""
        done = min(bisect.bisect_right(self._sizes, offset), len(self._sizes) - 1)
        if done > 0:
            del self._sizes[:done], self._times[:done]
