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
class PhaseLimits:
    """Limits of a phase, in seconds.

    Past `stall` a rank reports it, which by itself does no harm: it takes a peer that is stopped or out of reach as well. Past `patience`
    the rank is hung even without other evidence.
    """

    stall: float
    patience: float


#: Between a rank's first word and its last: time for the others' first, since a rank that says nothing at all is taken to be stuck.
HEARING_SECONDS = 2.0
UNMEASURED = PhaseLimits(stall=60.0, patience=600.0)
#: Meeting takes a tenth of a second once all ranks are on the way; how long that takes at a job's start is the coordinator's to limit.
MEETING = PhaseLimits(stall=10.0, patience=600.0)


def limits_of_steps(durations: Sequence[float], hang_seconds: float | None) -> PhaseLimits:
    """Return the limits of a step from the durations of committed steps.

    A data read that hangs for half a minute is no reason to lose a rank, but a rank that waits for a stopped peer need not wait for that.
    """
    if not durations:
        return UNMEASURED
    if len(durations) < ENOUGH_STEPS:
        return PhaseLimits(10 * max(durations) + 5.0, UNMEASURED.patience)
    typical = percentile_99(durations)
    stall = 2 * typical + 0.5
    return PhaseLimits(stall, 10 * typical + 30.0 if hang_seconds is None else max(hang_seconds, stall + HEARING_SECONDS))


def limits_of_others(durations: Sequence[float], hang_seconds: float | None) -> PhaseLimits:
    """Return the limits of evaluations and saves, which are few and as slow as the disk is today."""
    if len(durations) < ENOUGH_OTHERS:
        return UNMEASURED
    stall = 10 * max(durations) + 10.0
    return PhaseLimits(stall, max(stall + 30.0, hang_seconds or 0.0))


def percentile_99(durations: Sequence[float]) -> float:
    ordered = sorted(durations)
    return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


class PhaseTimes:
    """Durations measured in the life of this process, and the limits that follow from them."""

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
        """Note the duration of a save from beginning to end. The training thread takes only a part of it, and has to wait for the rest
        now and then."""
        self._saves.append(seconds)

    def enter_world(self, before: int, after: int) -> None:
        """Adapt to a world of another size: fewer ranks have more to do each, and everything that depends on the world is built anew."""
        self._warming = WARM_UP_STEPS
        if 0 < after < before:
            self._steps = deque((seconds * before / after for seconds in self._steps), maxlen=WINDOW)

    def limits(self, phase: Phase) -> PhaseLimits | None:
        """Return the limits of a phase; None for a phase that cannot take too long."""
        if phase == "rest":
            return None
        if phase == "rendezvous":
            return MEETING
        if phase == "search":  # of the largest micro-batch: each try is another size
            return UNMEASURED
        if phase != "step":
            return limits_of_others(tuple(self._evaluations if phase == "evaluation" else self._saves), self._hang_seconds)
        limits = limits_of_steps(tuple(self._steps), self._hang_seconds)
        return PhaseLimits(limits.stall + MEETING.stall, limits.patience + MEETING.stall) if self._warming else limits
