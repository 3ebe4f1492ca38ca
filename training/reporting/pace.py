"""How long things take on this rank, and from when on that is too long. Pure: seconds in, limits out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Phase = Literal["step", "evaluation", "save", "search", "rendezvous", "rest"]

#: Steps that are looked back at.
WINDOW = 256
#: The first steps of a generation allocate and compile.
WARM_UP_STEPS = 2
#: Fewer measurements say little: how long things take, but not how much that varies.
ENOUGH_STEPS = 8
ENOUGH_OTHERS = 2


@dataclass(frozen=True)
class Limits:
    """In seconds. Past `stall` a rank says so, which by itself harms nobody: it takes a peer that is stopped or out of reach as well.
    Past `patience` it is hung though nothing else speaks for that."""

    stall: float
    patience: float


#: Between a rank's first word and its last: time for the others' first, since who says nothing at all is taken to be stuck.
HEARING_SECONDS = 2.0
UNMEASURED = Limits(stall=60.0, patience=600.0)
#: Meeting takes a tenth of a second once everyone is on the way; how long that takes at a job's start is the coordinator's to limit.
MEETING = Limits(stall=10.0, patience=600.0)


def limits_of_steps(durations: Sequence[float], hang_seconds: float | None) -> Limits:
    """From committed steps. A data read that hangs for half a minute is no reason to lose a rank, but one that a stopped peer keeps
    waiting need not wait for that."""
    if not durations:
        return UNMEASURED
    if len(durations) < ENOUGH_STEPS:
        return Limits(10 * max(durations) + 5.0, UNMEASURED.patience)
    typical = percentile_99(durations)
    stall = 2 * typical + 0.5
    return Limits(stall, 10 * typical + 30.0 if hang_seconds is None else max(hang_seconds, stall + HEARING_SECONDS))


def limits_of_others(durations: Sequence[float], hang_seconds: float | None) -> Limits:
    """Of evaluations and saves: few, and as slow as the disk is today."""
    if len(durations) < ENOUGH_OTHERS:
        return UNMEASURED
    stall = 10 * max(durations) + 10.0
    return Limits(stall, max(stall + 30.0, hang_seconds or 0.0))


def percentile_99(durations: Sequence[float]) -> float:
    ordered = sorted(durations)
    return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


class Pace:
    """What has been measured in the life of this process."""

    def __init__(self, hang_seconds: float | None = None) -> None:
        self._hang_seconds = hang_seconds
        self._steps: deque[float] = deque(maxlen=WINDOW)
        self._evaluations: deque[float] = deque(maxlen=WINDOW)
        self._saves: deque[float] = deque(maxlen=WINDOW)
        self._warming = WARM_UP_STEPS

    def note(self, phase: Phase, seconds: float) -> None:
        if phase == "step" and self._warming:
            self._warming -= 1
        elif phase == "step":
            self._steps.append(seconds)
        elif phase == "evaluation":
            self._evaluations.append(seconds)

    def saved(self, seconds: float) -> None:
        """From beginning to end. The training thread takes only a part of it, and has to wait for the rest now and then."""
        self._saves.append(seconds)

    def enter_world(self, before: int, after: int) -> None:
        """Of another size: fewer ranks have more to do each, and whatever depends on the world is built anew."""
        self._warming = WARM_UP_STEPS
        if 0 < after < before:
            self._steps = deque((seconds * before / after for seconds in self._steps), maxlen=WINDOW)

    def limits(self, phase: Phase) -> Limits | None:
        """None: nothing that could take too long."""
        if phase == "rest":
            return None
        if phase == "rendezvous":
            return MEETING
        if phase == "search":  # of the largest micro-batch: each try is another size
            return UNMEASURED
        if phase != "step":
            return limits_of_others(tuple(self._evaluations if phase == "evaluation" else self._saves), self._hang_seconds)
        limits = limits_of_steps(tuple(self._steps), self._hang_seconds)
        return Limits(limits.stall + MEETING.stall, limits.patience + MEETING.stall) if self._warming else limits
