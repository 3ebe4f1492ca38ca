"""What to store of an upload: pure. Whatever was sent before is dropped, nothing after a hole is taken, and a record that cannot be
stored is passed over alone: the mark moves beyond it, so that it is counted and told once."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec

from api.services.screening import refusal
from cluster.storage import BUCKET_BYTES, LINE_BYTES, POINT_BYTES, Kind, curve_kind
from db.repositories.ingest import Row, Stream
from monitoring.points import MetricRecord, RankBatch
from monitoring.rollup import LEVELS, Bucket, all_levels

Key = tuple[str, str, int, int, int, int]  # job_id, name, rank, level, bucket, generation
#: Of one metric in one upload: up to so many are rolled up one by one.
FEW_POINTS = 3
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(dict[str, float | str])


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


@dataclass(frozen=True)
class Refused:
    """What was passed over of one rank's news: how many, and the first of them in words."""

    job_id: str
    generation: int
    rank: int
    count: int
    example: str


@dataclass(frozen=True)
class Stored:
    """What became of some batches. `crowded`: jobs that had too many metric names, each with one that was left out."""

    marks: dict[Stream, int] = field(default_factory=dict)
    refused: Sequence[Refused] = ()
    crowded: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Changes:
    """Everything that one transaction adds: an accumulator over the uploads of a group."""

    records: list[Row] = field(default_factory=list)
    logs: list[Row] = field(default_factory=list)
    names: set[tuple[str, str]] = field(default_factory=set)
    rollups: dict[Key, Bucket] = field(default_factory=dict)
    marks: dict[Stream, int] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)
    sizes: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)  # (rows, bytes) by (job, kind)

    def count(self, job_id: str, kind: str, rows: int, size: int) -> None:
        before = self.sizes.get((job_id, kind), (0, 0))
        self.sizes[job_id, kind] = (before[0] + rows, before[1] + size)

    def rollup_rows(self) -> list[Row]:
        return [
            (*key, b.count, b.nan_count, b.minimum, b.maximum, b.sum, b.last, b.last_step, b.last_time) for key, b in self.rollups.items()
        ]


def streams_of(batch: RankBatch) -> tuple[Stream, Stream]:
    key = (batch.job_id, batch.generation, batch.rank)
    return (*key, "metrics"), (*key, "logs")


def streams_with_news(batch: RankBatch) -> list[Stream]:
    """Those that the batch has something of; both for an empty one, which asks how far they are."""
    metrics, logs = streams_of(batch)
    if not batch.metrics and not batch.logs:
        return [metrics, logs]
    return [stream for stream, items in ((metrics, batch.metrics), (logs, batch.logs)) if items]


def add_batch(changes: Changes, batch: RankBatch, marks: Mapping[Stream, int]) -> None:
    """Put what is new in `batch` into `changes`; `marks` are the ones stored before this transaction."""
    metrics, logs = streams_of(batch)
    fresh = contiguous(batch.metrics, changes.marks.get(metrics, marks.get(metrics, 0)))
    if fresh:
        changes.marks[metrics] = fresh[-1].seq
        _add_records(changes, batch, sound(changes, batch, fresh))
    lines = contiguous(batch.logs, changes.marks.get(logs, marks.get(logs, 0)))
    if lines:
        changes.marks[logs] = lines[-1].seq
        place = (batch.job_id, batch.generation, batch.rank)
        storable = sound(changes, batch, lines)
        changes.logs.extend((*place, line.time, line.level, _clean(line.text)) for line in storable)
        changes.count(batch.job_id, Kind.LINES, len(storable), sum(LINE_BYTES + len(line.text) for line in storable))


def sound(changes: Changes, batch: RankBatch, items: Sequence[N]) -> list[N]:
    """Those that can be stored; the others are noted as refused."""
    refusals = [refusal(item) for item in items]
    if not any(refusals):
        return list(items)
    told = [why for why in refusals if why is not None]
    changes.refused.append(Refused(batch.job_id, batch.generation, batch.rank, len(told), told[0]))
    return [item for item, why in zip(items, refusals, strict=True) if why is None]


def leave_out_names(changes: Changes, excess: Collection[tuple[str, str]]) -> None:
    """Take these (job, metric name) out of what is to be stored, with every value that they have."""
    jobs = {job_id for job_id, _ in excess}
    changes.names -= set(excess)
    changes.rollups = {key: bucket for key, bucket in changes.rollups.items() if key[:2] not in excess}
    changes.records = [_without_names(row, excess) if row[0] in jobs else row for row in changes.records]


def _without_names(row: Row, excess: Collection[tuple[str, str]]) -> Row:
    values = {name: value for name, value in _decoder.decode(row[5]).items() if (row[0], name) not in excess}
    return (*row[:5], _encoder.encode(values).decode())


def _add_records(changes: Changes, batch: RankBatch, records: Sequence[MetricRecord]) -> None:
    points: dict[str, list[tuple[int, float, float]]] = {}
    size = 0
    for record in records:
        values = {_clean(name): float(value) for name, value in record.values.items()}
        text = dump_values(values)
        changes.records.append((batch.job_id, batch.generation, batch.rank, record.step, record.time, text))
        size += POINT_BYTES + len(text)
        for name, value in values.items():
            points.setdefault(name, []).append((record.step, record.time, value))
    changes.count(batch.job_id, Kind.POINTS, len(records), size)
    for name, series in points.items():
        changes.names.add((batch.job_id, name))
        _add_series(changes, batch, name, series, begins=records[0].seq == 1)


def _add_series(changes: Changes, batch: RankBatch, name: str, series: Sequence[tuple[int, float, float]], *, begins: bool) -> None:
    """A bucket is counted as new where it begins; one that began before this batch is there already, unless this is the first."""
    first = series[0][0]
    for level in LEVELS:
        opened = sum(begins or number * level >= first for number in {step // level for step, _, _ in series})
        changes.count(batch.job_id, curve_kind(level), opened, opened * BUCKET_BYTES)
    if len(series) <= FEW_POINTS:
        _add_points(changes, batch, name, series)
        return
    for level, buckets in all_levels(series).items():
        for number, bucket in buckets.items():
            key = (batch.job_id, name, batch.rank, level, number, batch.generation)
            known = changes.rollups.setdefault(key, bucket)
            if known is not bucket:
                known.merge(bucket)


def _add_points(changes: Changes, batch: RankBatch, name: str, series: Sequence[tuple[int, float, float]]) -> None:
    """The same for a few: each into its bucket of every level, without buckets in between."""
    for step, time, value in series:
        for level in LEVELS:
            key = (batch.job_id, name, batch.rank, level, step // level, batch.generation)
            bucket = changes.rollups.get(key)
            if bucket is None:
                bucket = changes.rollups[key] = Bucket()
            bucket.add(step, time, value)


def dump_values(values: Mapping[str, float]) -> str:
    """JSON text; NaN and the infinities as the strings that the wire has for them."""
    if all(map(math.isfinite, values.values())):
        return _encoder.encode(values).decode()
    return _encoder.encode({name: value if math.isfinite(value) else _NAMES[str(value)] for name, value in values.items()}).decode()


_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _clean(text: str) -> str:
    """PostgreSQL cannot hold NUL in text."""
    return text.replace("\0", "\ufffd") if "\0" in text else text
