"""Decide by measurement whether gradients are exchanged while the last backward computes, or after it. Pure.

On a slow network, or with cores to spare, the exchange hides behind backward; where ranks and network share the same cores it slows backward by as much.
"""

from __future__ import annotations

import statistics
from typing import Protocol

#: Steps of each kind that are timed, in turns, after WARM_UP ones.
TIMED = 4
WARM_UP = 1
#: The early exchange is taken where it saves at least this share of the time.
WORTH = 0.02


class ExchangeTiming(Protocol):
    """Says when gradients are exchanged, and is told how long it took."""

    @property
    def early(self) -> bool:
        """Whether the next step is to exchange within the last backward."""
        ...

    def timed(self, seconds: float) -> None:
        """Count a step whose last pass and exchange took so long."""
        ...


class ExchangeTrial:
    """A trial over the first steps of a generation. `early`: whether the next step is to exchange early.

    Ranks count steps alike, so that all try the same at the same time. Each then decides by its own times: the same messages are sent either way.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._seconds: dict[bool, list[float]] = {True: [], False: []}
        self._chosen: bool | None = None

    @property
    def early(self) -> bool:
        return self._steps >= WARM_UP and (self._steps - WARM_UP) % 2 == 0 if self._chosen is None else self._chosen

    def timed(self, seconds: float) -> None:
        """Count a step whose last pass and exchange took so long."""
        if self._chosen is not None:
            return
        if self._steps >= WARM_UP:
            self._seconds[self.early].append(seconds)
        self._steps += 1
        if self._steps == WARM_UP + 2 * TIMED:
            early, after = (statistics.median(self._seconds[kind]) for kind in (True, False))
            self._chosen = early < after * (1 - WORTH)
