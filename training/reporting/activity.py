"""What the training thread is at, for its watchdog to look at."""

from __future__ import annotations

import time
from typing import NamedTuple

from training.reporting.pace import Pace, Phase


class Doing(NamedTuple):
    phase: Phase
    step: int
    since: float  # monotonic


class Activity:
    """One attribute, so that no lock is needed. Entering the next thing ends the last one, whose time is noted."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.doing = Doing("rest", 0, time.monotonic())

    def enter(self, phase: Phase, step: int, now: float | None = None) -> None:
        before, moment = self.doing, time.monotonic() if now is None else now
        self.pace.note(before.phase, moment - before.since)
        self.doing = Doing(phase, step, moment)

    def give_up(self) -> None:
        """What was begun broke off, and its time says nothing."""
        self.doing = Doing("rest", self.doing.step, time.monotonic())
