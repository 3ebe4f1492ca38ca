"""Measurements from the training loop to disk without the loop ever waiting: no lock, no I/O, no device sync in `record`.

A bounded queue takes the values; a thread empties it into the sink every DRAIN_SECONDS. What does not fit is dropped, counted and
told once; a user's own burst waits for room first, as long as the disk takes anything. What the disk does not take now is kept and
tried again. What cannot be recorded is refused in the line of its caller.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.monitoring.checks import checked_step, checked_values
from paceline.monitoring.points import MAX_NAMES, RESERVED_NAMES, DataDropped
from paceline.monitoring.sinks import MetricSink, MetricSpool

DRAIN_SECONDS = 0.05
CAPACITY = 10_000
#: The part of the queue that a user's own values may fill: the rest is for the trainer's.
USERS_SHARE = 0.5
#: A user's value waits so long for room in the queue, once: then not before the disk has taken something again.
ROOM_SECONDS = 1.0
CLOSE_TIMEOUT_SECONDS = 5.0
FLUSH_TIMEOUT_SECONDS = 5.0
#: After a failed write, until the next one.
RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Measurement:
    step: int
    time: float
    values: Mapping[str, float]


class Recorder:
    """Queues measurements and writes them in a thread of its own, so that the training loop does not wait.

    `record` is for the trainer, `record_own` for a user's own code; both raise TypeError or ValueError for an invalid step, name or value.
    `on_dropped` receives reports of dropped records for the coordinator; it is called in the recorder's thread, as `after_write` is.
    """

    def __init__(self, sink: MetricSink, capacity: int = CAPACITY) -> None:
        self.dropped = 0  # records
        self.dropped_values = 0  # of names that were one too many
        self.after_write: Callable[[], None] | None = None
        self.on_dropped: Callable[[DataDropped], None] | None = None
        self._sink = sink
        self._capacity = capacity
        self._names: set[str] = set()  # of the trainer
        self._own_names: set[str] = set()
        self._reserved = RESERVED_NAMES
        self._queue: deque[Measurement] = deque()
        self._unreported: deque[DataDropped] = deque()
        self._warned: set[str] = set()
        self._failing = False
        self._flushes: deque[threading.Event] = deque()
        self._drained, self._stuck = threading.Event(), False
        self._stop, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def reserve(self, names: frozenset[str]) -> None:
        """Make `record_own` refuse these names from now on: a trainer records them here."""
        self._reserved |= names

    def is_reserved(self, names: Iterable[str]) -> bool:
        """Whether a trainer records any of these names here, so that `record_own` would refuse them."""
        return not self._reserved.isdisjoint(names)

    def record(self, step: int, values: Mapping[str, float]) -> None:
        """Keep `values` as measured at `step`. Raises TypeError or ValueError for an invalid step, name or value."""
        self._put(Measurement(checked_step(step), time.time(), checked_values(values, self._names)), self._capacity)

    def record_own(self, step: Any, values: Mapping[str, Any]) -> None:
        """Keep what a user's own code has measured, however much at once. Names over MAX_NAMES are dropped, counted and told once.

        Raises TypeError or ValueError for an invalid step, name or value, and for a name that the trainer records.
        """
        step = checked_step(step)
        if self.is_reserved(values):
            self._refuse_reserved(values)
        if not self._own_names.issuperset(values):
            values = self._admit(values)
        capacity = int(self._capacity * USERS_SHARE)
        if len(self._queue) >= capacity and not self._stuck:
            self._await_room()
        self._put(Measurement(step, time.time(), checked_values(values, self._own_names)), capacity)

    def _refuse_reserved(self, values: Mapping[str, Any]) -> None:
        taken = sorted(self._reserved.intersection(values))
        raise ValueError(f"metric {taken[0]} is recorded by the trainer itself: give your own another name, such as my_{taken[0]}")

    def _admit(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """`values` without the new names for which there is no room."""
        new = [name for name in values if name not in self._own_names]
        room = MAX_NAMES - len(self._own_names)
        if len(new) <= room:
            return values
        over = set(new[max(0, room) :])
        self.dropped_values += len(over)
        reason = f"over {MAX_NAMES} distinct names of metrics in one rank: log fewer, or put what varies into the value"
        self.drop("metric names", len(over), reason, str(new[max(0, room)]))
        return {name: value for name, value in values.items() if name not in over}

    def _put(self, measurement: Measurement, capacity: int) -> None:
        if len(self._queue) >= capacity:
            self.dropped += 1
            return self.drop("metric records", 1, "recorded faster than the disk takes them: log less often", f"step {measurement.step}")
        self._queue.append(measurement)
        return None

    def _await_room(self) -> None:
        self._drained.clear()
        self._wake.set()
        self._stuck = not self._drained.wait(ROOM_SECONDS)

    def drop(self, what: str, count: int, reason: str, example: str) -> None:
        """Tell that `count` of `what` are not recorded: once for each `what`, from the recorder's thread."""
        if what not in self._warned:
            self._warned.add(what)
            self._unreported.append(DataDropped(what=what, count=count, reason=reason, example=example))

    def flush(self) -> None:
        """Wait until what is queued is written, so that it outlives this process; a stuck disk is waited for FLUSH_TIMEOUT_SECONDS only."""
        written = threading.Event()
        self._flushes.append(written)
        self._wake.set()
        written.wait(FLUSH_TIMEOUT_SECONDS)

    def close(self) -> None:
        """Write what is queued, durably. Harmless the second time."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._wake.set()
        self._thread.join(CLOSE_TIMEOUT_SECONDS)
        self._sink.close()

    # -- the recorder's thread: it survives whatever is raised in it

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(DRAIN_SECONDS)
            self._wake.clear()
            if not self._drain():
                self._stop.wait(RETRY_SECONDS)
        if not self._drain():
            self.dropped += len(self._queue)
            self._warn(f"{len(self._queue)} records of metrics are lost: the disk took none before the end")
        if self.dropped:
            self._warn(f"{self.dropped} records of metrics were dropped in all")
        if self.dropped_values:
            self._warn(f"{self.dropped_values} values of metrics over {MAX_NAMES} distinct names were dropped in all")

    def _drain(self) -> bool:
        """False where the disk did not take everything: what is left is first in the queue."""
        flushes = [self._flushes.popleft() for _ in range(len(self._flushes))]  # first: what they wait for is queued by now
        taken = [self._queue.popleft() for _ in range(len(self._queue))]
        rest = self._write(taken) if taken else ()
        self._queue.extendleft(reversed(rest))
        if not rest:
            self._stuck = False
            self._drained.set()
        for flush in flushes:
            flush.set()
        self._report_dropped()
        if taken and self.after_write is not None:
            self._safely(self.after_write)
        return not rest

    def _write(self, taken: Sequence[Measurement]) -> Sequence[Measurement]:
        """What the disk does not take now. One that can never be written is found by halving, and dropped alone."""
        try:
            self._sink.write(taken)
        except OSError as error:  # a full disk must not stop training
            if not self._failing:
                self._warn(f"metrics of steps {taken[0].step} to {taken[-1].step} not written: {error}; trying again")
            self._failing = True
            return taken
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are written
            if len(taken) > 1:
                middle = len(taken) // 2
                rest = self._write(taken[:middle])
                return [*rest, *taken[middle:]] if rest else self._write(taken[middle:])
            self.dropped += 1
            reason = f"cannot be written: {type(error).__name__}: {error}"
            self.drop("unwritable metric records", 1, reason, f"step {taken[0].step}")
        self._failing = False
        return ()

    def _report_dropped(self) -> None:
        while self._unreported:
            dropped = self._unreported.popleft()
            self._warn(f"{dropped.what} are dropped: {dropped.reason} (for example {dropped.example})")
            if self.on_dropped is not None:
                self._safely(functools.partial(self.on_dropped, dropped))

    def _safely(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - the thread goes on; what failed is said once for each kind of failure
            failure = f"{type(error).__name__}: {error}"
            if failure not in self._warned:
                self._warned.add(failure)
                self._warn(f"after metrics were written: {failure}")

    def _warn(self, text: str) -> None:
        """In the rank's output, which its agent ships as a log line."""
        try:
            print(f"WARNING {text}", file=sys.stderr, flush=True)
        except (OSError, ValueError):
            pass  # its output is on the same full disk, or closed


@functools.cache
def recorder_at(path: Path) -> Recorder:
    """The recorder of this process for the spool `path`. A spool has one writer: the trainer and `paceline.log` share it."""
    return Recorder(MetricSpool(path))
