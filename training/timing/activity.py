"""What the training thread is at, for its watchdog to look at."""

from __future__ import annotations

import time
from typing import NamedTuple

from paceline.training.timing.phase_times import Phase, PhaseTimes


class CurrentPhase(NamedTuple):
    phase: Phase
    step: int
    since: float  # monotonic


class Activity:
    """Present activity of the training thread. A single attribute, so that no lock is needed. Entering the next one ends the last, whose
    time is noted."""

    def __init__(self, times: PhaseTimes) -> None:
        self.times = times
        self.doing = CurrentPhase("rest", 0, time.monotonic())

    def enter(self, phase: Phase, step: int, now: float | None = None) -> None:
        before, moment = self.doing, time.monotonic() if now is None else now
        self.times.note(before.phase, moment - before.since)
        self.doing = CurrentPhase(phase, step, moment)

    def abandon(self) -> None:
        """Drop the present activity without noting its time: it broke off."""
        self.doing = CurrentPhase("rest", self.doing.step, time.monotonic())
