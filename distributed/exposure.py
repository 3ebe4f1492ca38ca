"""Measure exposed communication: how long a rank's computing stood still for it.

On the host a wait takes as long as the call does. On a GPU calls return at once, and the kernels that come after them wait: events are recorded in the stream
of the computation, before and after, and read once the host has waited for the step's values anyway. So nothing is synchronized for the measurement.
What torch itself starts in streams of its own, or between the operations of a model, it makes wait without a mark; there the sum is not known (`is_whole`).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch

#: The part of a step that the host's wait for the step's summed values counts as.
HostWait = Literal["communication_seconds", "backward_seconds"]


class WaitClock(Protocol):
    """Measures waits between a `mark` and a `since`; they may lie within each other."""

    waits_for: HostWait  # what the host waits for when it reads the step's values: other ranks, or kernels that run behind it
    is_whole: bool  # whether all waits are between marks; if not, the seconds are too few to be shown

    def mark(self) -> WaitMark | None:
        """Return the moment from which the computation waits; None where it does not wait."""
        ...

    def since(self, mark: WaitMark | None) -> float:
        """End a wait. Returns its seconds, or 0 where they are told by `collect`."""
        ...

    def collect(self) -> float:
        """Return the seconds of the waits that have ended and that `since` has not told; what lies within another one counts once."""
        ...

    def drop(self) -> None:
        """Forget the waits up to now, which belong to no step."""
        ...


class TimedEvent(Protocol):
    """A moment in a stream of a GPU: torch.cuda.Event with timing."""

    def record(self) -> None: ...
    def query(self) -> bool: ...
    def elapsed_time(self, end_event: Any) -> float: ...  # milliseconds


@dataclass(frozen=True)
class WaitMark:
    """A moment from which, or up to which, the computation waits."""

    number: float  # seconds of the host's clock, or the place in the order of the stream
    event: TimedEvent | None = None


class HostWaitClock:
    """By the host's clock, for computations on the host. It keeps nothing, so any thread may use it."""

    waits_for: HostWait = "communication_seconds"
    is_whole = True

    def mark(self) -> WaitMark:
        return WaitMark(time.perf_counter())

    def since(self, mark: WaitMark | None) -> float:
        return 0.0 if mark is None else time.perf_counter() - mark.number

    def collect(self) -> float:
        return 0.0

    def drop(self) -> None:
        """Do nothing: nothing is kept."""


class EventWaitClock:
    """By events in the stream of a GPU's computation. For the training thread, and those that compute while it waits for them."""

    waits_for: HostWait = "backward_seconds"

    def __init__(self, make_event: Callable[[], TimedEvent], is_computing: Callable[[], bool]) -> None:
        """`is_computing`: whether work that is started now goes to the stream of the computation, and not to one beside it."""
        self._make_event, self._is_computing = make_event, is_computing
        self.is_whole = True
        self._order = itertools.count()
        self._waits: list[tuple[WaitMark, WaitMark]] = []

    def mark(self) -> WaitMark | None:
        if not self._is_computing():
            return None
        event = self._make_event()
        event.record()
        return WaitMark(next(self._order), event)

    def since(self, mark: WaitMark | None) -> float:
        end = self.mark()
        if mark is not None and end is not None:
            self._waits.append((mark, end))
        return 0.0

    def collect(self) -> float:
        waits, self._waits = self._waits, []
        apart: list[tuple[WaitMark, WaitMark]] = []
        for start, end in sorted(waits, key=lambda wait: wait[0].number):
            if apart and start.number < apart[-1][1].number:
                apart[-1] = apart[-1][0], max(apart[-1][1], end, key=lambda mark: mark.number)
            else:
                apart.append((start, end))
        return sum(map(_seconds, apart))

    def drop(self) -> None:
        self._waits = []


def _seconds(wait: tuple[WaitMark, WaitMark]) -> float:
    """Return the seconds of a wait, 0 of one that the GPU is not done with."""
    start, end = wait[0].event, wait[1].event
    return start.elapsed_time(end) / 1000 if start is not None and end is not None and end.query() else 0.0


def exposure_on(device: torch.device) -> WaitClock:
    """Return what measures waits on a device: for a GPU, those of the stream that is the current one now."""
    if device.type != "cuda":
        return HostWaitClock()
    computing = torch.cuda.current_stream(device)

    def make_event() -> TimedEvent:
        made: TimedEvent = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        return made

    return EventWaitClock(make_event, lambda: torch.cuda.current_stream(device) == computing)
