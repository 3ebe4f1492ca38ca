"""Where measurements and events go: the spools in the rank's folder, which its agent uploads."""

from __future__ import annotations

import functools
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from paceline.monitoring.points import DataDropped, EventKind, MetricRecord, RankEvent
from paceline.monitoring.spool import SpoolWriter, frame

#: The page cache survives a killed process; syncing is for a machine that loses power.
SYNC_SECONDS = 1.0


class SteppedRecord(Protocol):
    @property
    def step(self) -> int: ...
    @property
    def time(self) -> float: ...
    @property
    def values(self) -> Mapping[str, float]: ...


class MetricSink(Protocol):
    def write(self, measurements: Sequence[SteppedRecord]) -> None:
        """Write all of the measurements, or none and raise."""

    def close(self) -> None: ...


class MetricSpool:
    """Numbers the records and appends them; the last SYNC_SECONDS may be lost with the machine, nothing with the process."""

    def __init__(self, path: Path) -> None:
        self._writer = SpoolWriter(path)
        self._synced = time.monotonic()

    def write(self, measurements: Sequence[SteppedRecord]) -> None:
        durable = time.monotonic() - self._synced >= SYNC_SECONDS
        try:
            with self._writer.lock():
                for seq, measured in enumerate(measurements, start=self._writer.records + 1):
                    self._writer.append(msgspec.json.encode(record_of(seq, measured)))
                self._writer.flush(durable=False)
        except BaseException:
            self._writer.discard()
            raise
        if durable:
            self._writer.flush(durable=True)
            self._synced = time.monotonic()

    def close(self) -> None:
        self._writer.close()


def record_of(seq: int, measured: SteppedRecord) -> MetricRecord:
    values = {name: on_the_wire(value) for name, value in measured.values.items()}
    return MetricRecord(seq=seq, step=measured.step, time=measured.time, values=values)


class EventSpool:
    """Events are few and must not be lost: each is durable before `emit` returns, or, on a full disk, kept here and tried again.

    Several threads of a process may share it."""

    def __init__(self, path: Path) -> None:
        self._writer = SpoolWriter(path)
        self._waiting: deque[tuple[float, EventKind, dict[str, Any]]] = deque()
        self._lock = threading.Lock()
        self._warned = False

    def emit(self, kind: EventKind, data: dict[str, Any]) -> None:
        """Write an event. Raises TypeError or SpoolRecordTooLargeError for one that can never be written; one that a full disk refuses
        is retried."""
        frame(self._encoded(kind, data, time.time()))
        self._waiting.append((time.time(), kind, data))
        self.write_waiting()

    def emit_dropped(self, dropped: DataDropped) -> None:
        self.emit("data_dropped", msgspec.to_builtins(dropped))

    def write_waiting(self) -> None:
        """Write what a full disk has held up. Costs nothing where nothing waits."""
        if not self._waiting:
            return
        with self._lock:
            try:
                while self._waiting:
                    self._write(*self._waiting[0])
                    self._waiting.popleft()
                self._writer.flush(durable=True)
            except OSError as error:
                self._warn(error)

    def _write(self, at: float, kind: EventKind, data: dict[str, Any]) -> None:
        with self._writer.lock():
            self._writer.append(self._encoded(kind, data, at))
            self._writer.flush(durable=False)

    def _encoded(self, kind: EventKind, data: dict[str, Any], at: float) -> bytes:
        return msgspec.json.encode(RankEvent(seq=self._writer.records + 1, time=at, kind=kind, data=data))

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            print(f"WARNING {len(self._waiting)} event(s) not written yet: {error}; trying again", file=sys.stderr, flush=True)
        self._warned = True

    def close(self) -> None:
        self.write_waiting()
        self._writer.close()


@functools.cache
def events_at(path: Path) -> EventSpool:
    """The event spool of this process at `path`: the trainer and `paceline.log` share it."""
    return EventSpool(path)


def on_the_wire(value: float) -> float | Literal["NaN", "Infinity", "-Infinity"]:
    """JSON has no NaN: such values travel by name."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
