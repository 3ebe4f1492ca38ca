"""Selects what to store of an upload. Pure. Records that were sent before are dropped, nothing after a hole is taken unless the agent says that
nothing is left there, and a record that cannot be stored is passed over alone: the mark moves beyond it, so that it is counted and reported once."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec

from paceline.api.services.ingest.screening import refusal
from paceline.cluster.history.storage import LINE_BYTES, POINT_BYTES, StorageKind
from paceline.db.repositories.ingest import Row, Stream
from paceline.monitoring.points import MetricRecord, RankBatch

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(dict[str, float | str])


class SequencedItem(Protocol):
    @property
    def seq(self) -> int: ...


N = TypeVar("N", bound=SequencedItem)


def contiguous(items: Sequence[N], mark: int) -> list[N]:
    """The items that follow `mark` without a hole."""
    fresh: list[N] = []
    for item in items:
        if item.seq == mark + 1:
            fresh.append(item)
            mark = item.seq
    return fresh


def in_parts(batches: Sequence[RankBatch], most: int) -> list[list[RankBatch]]:
    """The events of batches, in their order, in parts of at most `most` events."""
    parts: list[list[RankBatch]] = []
    room = 0
    for batch in batches:
        events = batch.events
        while events:
            if not room:
                parts.append([])
                room = most
            taken, events = events[:room], events[room:]
            parts[-1].append(msgspec.structs.replace(batch, events=taken))
            room -= len(taken)
    return parts


def behind_gone(items: Sequence[SequencedItem], mark: int, gone: int) -> int:
    """The mark behind the records that the agent has no more: `gone`, where the items begin right behind it and the mark has not come that far."""
    return gone if mark < gone and items and items[0].seq == gone + 1 else mark


@dataclass(frozen=True)
class RefusedRecord:
    """The records of one rank that were passed over: how many, and the first of them in words."""

    job_id: str
    generation: int
    rank: int
    count: int
    example: str


@dataclass(frozen=True)
class StoredBatches:
    """The outcome of some batches. `crowded`: jobs that had too many metric names, each with one that was left out."""

    marks: dict[Stream, int] = field(default_factory=dict)
    refused: Sequence[RefusedRecord] = ()
    crowded: Mapping[str, str] = field(default_factory=dict)


@dataclass
class UploadChanges:
    """The additions of one transaction: an accumulator over the uploads of a group."""

    records: list[Row] = field(default_factory=list)
    logs: list[Row] = field(default_factory=list)
    names: set[tuple[str, str]] = field(default_factory=set)
    marks: dict[Stream, int] = field(default_factory=dict)
    refused: list[RefusedRecord] = field(default_factory=list)
    sizes: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)  # (rows, bytes) by (job, kind)

    def count(self, job_id: str, kind: str, rows: int, size: int) -> None:
        before = self.sizes.get((job_id, kind), (0, 0))
        self.sizes[job_id, kind] = (before[0] + rows, before[1] + size)


def streams_of(batch: RankBatch) -> tuple[Stream, Stream]:
    key = (batch.job_id, batch.generation, batch.rank)
    return (*key, "metrics"), (*key, "logs")


def streams_with_news(batch: RankBatch) -> list[Stream]:
    """The streams that the batch has records of; both for an empty one, which asks how far they are."""
    metrics, logs = streams_of(batch)
    if not batch.metrics and not batch.logs:
        return [metrics, logs]
    return [stream for stream, items in ((metrics, batch.metrics), (logs, batch.logs)) if items]


def add_batch(changes: UploadChanges, batch: RankBatch, marks: Mapping[Stream, int]) -> None:
    """Put the new records of `batch` into `changes`; `marks` are the ones stored before this transaction."""
    metrics, logs = streams_of(batch)
    mark = changes.marks.get(metrics, marks.get(metrics, 0))
    fresh = contiguous(batch.metrics, behind_gone(batch.metrics, mark, batch.metrics_gone))
    if fresh:
        changes.marks[metrics] = fresh[-1].seq
        _add_records(changes, batch, sound(changes, batch, fresh))
    lines = contiguous(batch.logs, changes.marks.get(logs, marks.get(logs, 0)))
    if lines:
        changes.marks[logs] = lines[-1].seq
        place = (batch.job_id, batch.generation, batch.rank)
        storable = sound(changes, batch, lines)
        changes.logs.extend((*place, line.time, line.level, _clean(line.text)) for line in storable)
        changes.count(batch.job_id, StorageKind.LINES, len(storable), sum(LINE_BYTES + len(line.text) for line in storable))


def sound(changes: UploadChanges, batch: RankBatch, items: Sequence[N]) -> list[N]:
    """The records that can be stored; the others are noted as refused."""
    refusals = [refusal(item) for item in items]
    if not any(refusals):
        return list(items)
    told = [why for why in refusals if why is not None]
    changes.refused.append(RefusedRecord(batch.job_id, batch.generation, batch.rank, len(told), told[0]))
    return [item for item, why in zip(items, refusals, strict=True) if why is None]


def leave_out_names(changes: UploadChanges, excess: Collection[tuple[str, str]]) -> None:
    """Take these (job, metric name) out of the changes, with every value that they have."""
    jobs = {job_id for job_id, _ in excess}
    changes.names -= set(excess)
    changes.records = [_without_names(row, excess) if row[0] in jobs else row for row in changes.records]


def _without_names(row: Row, excess: Collection[tuple[str, str]]) -> Row:
    values = {name: value for name, value in _decoder.decode(row[5]).items() if (row[0], name) not in excess}
    return (*row[:5], _encoder.encode(values).decode())


def _add_records(changes: UploadChanges, batch: RankBatch, records: Sequence[MetricRecord]) -> None:
    size = 0
    for record in records:
        values = {_clean(name): float(value) for name, value in record.values.items()}
        text = dump_values(values)
        changes.records.append((batch.job_id, batch.generation, batch.rank, record.step, record.time, text))
        size += POINT_BYTES + len(text)
        changes.names.update((batch.job_id, name) for name in values)
    changes.count(batch.job_id, StorageKind.POINTS, len(records), size)


def dump_values(values: Mapping[str, float]) -> str:
    """JSON text; NaN and the infinities as the strings that the wire has for them."""
    if all(map(math.isfinite, values.values())):
        return _encoder.encode(values).decode()
    return _encoder.encode({name: value if math.isfinite(value) else _NAMES[str(value)] for name, value in values.items()}).decode()


_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _clean(text: str) -> str:
    """The text without NUL, which PostgreSQL cannot hold."""
    return text.replace("\0", "\ufffd") if "\0" in text else text
