"""Where measurements and events go: the spools in the rank's folder, which its agent uploads."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from monitoring.points import EventKind, MetricRecord, RankEvent
from monitoring.spool import SpoolReader, SpoolWriter

#: The page cache survives a killed process; syncing is for a machine that loses power.
SYNC_SECONDS = 1.0


class Measured(Protocol):
    @property
    def step(self) -> int: ...
    @property
    def time(self) -> float: ...
    @property
    def values(self) -> Mapping[str, float]: ...


class MetricSink(Protocol):
    def write(self, measurements: Iterable[Measured]) -> None: ...

    def close(self) -> None: ...


class MetricSpool:
    """Numbers the records and appends them; the last SYNC_SECONDS may be lost with the machine, nothing with the process."""

    def __init__(self, path: Path) -> None:
        self._seq = count_records(path)
        self._writer = SpoolWriter(path)
        self._synced = time.monotonic()

    def write(self, measurements: Iterable[Measured]) -> None:
        for measured in measurements:
            values = {name: on_the_wire(value) for name, value in measured.values.items()}
            record = MetricRecord(seq=self._seq + 1, step=measured.step, time=measured.time, values=values)
            self._writer.append(msgspec.json.encode(record))
            self._seq += 1
        now = time.monotonic()
        durable = now - self._synced >= SYNC_SECONDS
        self._writer.flush(durable=durable)
        self._synced = now if durable else self._synced

    def close(self) -> None:
        self._writer.close()


class EventSpool:
    """Events are few and must not be lost: each is durable before `emit` returns."""

    def __init__(self, path: Path) -> None:
        self._seq = count_records(path)
        self._writer = SpoolWriter(path)

    def emit(self, kind: EventKind, data: dict[str, Any]) -> None:
        event = RankEvent(seq=self._seq + 1, time=time.time(), kind=kind, data=data)
        self._writer.append(msgspec.json.encode(event))
        self._writer.flush(durable=True)
        self._seq += 1

    def close(self) -> None:
        self._writer.close()


def count_records(path: Path) -> int:
    """Records already there, from an earlier process with the same folder: their numbers are taken."""
    reader, count = SpoolReader(path), 0
    while records := reader.read():
        count += len(records)
    return count


def on_the_wire(value: float) -> float | Literal["NaN", "Infinity", "-Infinity"]:
    """JSON has no NaN: such values travel by name."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
