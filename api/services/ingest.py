"""What to store of an upload: pure. Whatever was sent before is dropped, and nothing after a hole is taken."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec

from db.repositories.ingest import Row, Stream
from monitoring.points import MetricRecord, RankBatch
from monitoring.rollup import Bucket, all_levels

Key = tuple[str, str, int, int, int, int]  # job_id, name, rank, level, bucket, generation
_encoder = msgspec.json.Encoder()


class Numbered(Protocol):
    @property
    def seq(self) -> int: ...


N = TypeVar("N", bound=Numbered)


def contiguous(items: Sequence[N], mark: int) -> list[N]:
    """The items that follow `mark` without a hole."""
    fresh: list[N] = []
    for item in items:
        if item.seq == mark + 1:
            fresh.append(item)
            mark = item.seq
    return fresh


@dataclass
class Changes:
    """Everything that one transaction adds: an accumulator over the uploads of a group."""

    records: list[Row] = field(default_factory=list)
    logs: list[Row] = field(default_factory=list)
    names: set[tuple[str, str]] = field(default_factory=set)
    rollups: dict[Key, Bucket] = field(default_factory=dict)
    marks: dict[Stream, int] = field(default_factory=dict)

    def rollup_rows(self) -> list[Row]:
        return [
            (*key, b.count, b.nan_count, b.minimum, b.maximum, b.sum, b.last, b.last_step, b.last_time) for key, b in self.rollups.items()
        ]


def streams_of(batch: RankBatch) -> tuple[Stream, Stream]:
    key = (batch.job_id, batch.generation, batch.rank)
    return (*key, "metrics"), (*key, "logs")


def add_batch(changes: Changes, batch: RankBatch, marks: Mapping[Stream, int]) -> None:
    """Put what is new in `batch` into `changes`; `marks` are the ones stored before this transaction."""
    metrics, logs = streams_of(batch)
    fresh = contiguous(batch.metrics, changes.marks.get(metrics, marks.get(metrics, 0)))
    if fresh:
        changes.marks[metrics] = fresh[-1].seq
        _add_records(changes, batch, fresh)
    lines = contiguous(batch.logs, changes.marks.get(logs, marks.get(logs, 0)))
    if lines:
        changes.marks[logs] = lines[-1].seq
        changes.logs.extend((batch.job_id, batch.generation, batch.rank, line.time, line.level, _clean(line.text)) for line in lines)


def _add_records(changes: Changes, batch: RankBatch, records: Sequence[MetricRecord]) -> None:
    points: dict[str, list[tuple[int, float, float]]] = {}
    for record in records:
        values = {_clean(name): float(value) for name, value in record.values.items()}
        changes.records.append((batch.job_id, batch.generation, batch.rank, record.step, record.time, dump_values(values)))
        for name, value in values.items():
            points.setdefault(name, []).append((record.step, record.time, value))
    for name, series in points.items():
        changes.names.add((batch.job_id, name))
        _add_series(changes, batch, name, series)


def _add_series(changes: Changes, batch: RankBatch, name: str, series: Sequence[tuple[int, float, float]]) -> None:
    for level, buckets in all_levels(series).items():
        for number, bucket in buckets.items():
            key = (batch.job_id, name, batch.rank, level, number, batch.generation)
            known = changes.rollups.setdefault(key, bucket)
            if known is not bucket:
                known.merge(bucket)


def dump_values(values: Mapping[str, float]) -> str:
    """JSON text; NaN and the infinities as the strings that the wire has for them."""
    if all(map(math.isfinite, values.values())):
        return _encoder.encode(values).decode()
    return _encoder.encode({name: value if math.isfinite(value) else _NAMES[str(value)] for name, value in values.items()}).decode()


_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _clean(text: str) -> str:
    """PostgreSQL cannot hold NUL in text."""
    return text.replace("\0", "\ufffd") if "\0" in text else text
