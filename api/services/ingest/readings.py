"""Stores readings of nodes: uploads that wait at the same moment in one transaction, each record once."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import Services
from paceline.api.core.gathering import Gathering
from paceline.api.errors import ProblemError
from paceline.cluster.history.node_readings import RAW_READINGS, READING_ROW_BYTES
from paceline.db.repositories import ingest, readings, storage
from paceline.monitoring.packed import pack_record
from paceline.monitoring.readings import (
    MAX_READINGS,
    MAX_STEPS,
    MAX_SUBJECT_CHARACTERS,
    MAX_SUBJECTS,
    NodeReadings,
    ReadingRecord,
    metrics_of,
)

MOST_RECORDS = 5_000
MOST_IN_GROUP = 64
#: An upload of more records is looked through in a thread.
RECORDS_IN_LOOP = 10
#: How far a node's clock may be ahead.
LONGEST_AHEAD = timedelta(days=1)
_MAX_SPOOL = (1 << 62) - 1


class PackedReadings(NamedTuple):
    """A record of readings, ready to be stored."""

    seq: int
    first_time: float
    last_time: float
    data: bytes


class _Upload(NamedTuple):
    node_id: str
    spool: int
    records: Sequence[PackedReadings]


class ReadingsWriter:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._gathering: Gathering[_Upload, int] = Gathering("readings-writer", self._commit, MOST_IN_GROUP)

    async def store(self, node_id: str, sent: NodeReadings) -> int:
        """The highest `seq` of this spool that is stored, durably, after storing what was new. Raises ProblemError where a record cannot
        be stored."""
        now = self._services.now()
        packed = _packed(sent, now) if len(sent.records) <= RECORDS_IN_LOOP else await asyncio.to_thread(_packed, sent, now)
        return await self._gathering.ask(node_id, _Upload(node_id, sent.spool, packed))

    def running(self) -> AbstractAsyncContextManager[None]:
        return self._gathering.running()

    async def _commit(self, group: Sequence[_Upload]) -> list[int]:
        async with self._services.metrics.write() as session:
            await readings.lock(session)
            marks = await self._add_new(session, group)
        self._services.bus.publish(bus.READINGS)
        return marks

    async def _add_new(self, session: AsyncSession, group: Sequence[_Upload]) -> list[int]:
        streams = [readings.spool_stream(each.node_id, each.spool) for each in group]
        before = await ingest.marks(session, streams)
        rows: list[dict[str, Any]] = []
        sizes: dict[tuple[str, str], tuple[int, int]] = {}
        marks: list[int] = []
        for each, stream in zip(group, streams, strict=True):
            mark = before.get(stream, 0)
            fresh = [record for record in each.records if record.seq > mark]
            rows += [{"node_id": each.node_id, **{key: getattr(record, key) for key in _COLUMNS}} for record in fresh]
            sizes[each.node_id, RAW_READINGS] = (len(fresh), sum(READING_ROW_BYTES + len(record.data) for record in fresh))
            marks.append(fresh[-1].seq if fresh else mark)
        await readings.add(session, rows)
        await ingest.set_marks(session, dict(zip(streams, marks, strict=True)))
        new = {each.node_id: each.spool for each, stream in zip(group, streams, strict=True) if stream not in before}
        await readings.forget_spools(session, new)
        await storage.add(session, sizes, self._services.now())
        return marks


_COLUMNS = ("first_time", "last_time", "data")


def _packed(sent: NodeReadings, now: datetime) -> list[PackedReadings]:
    """The records, packed. Raises ProblemError `invalid_request` that names the value and the limit."""
    refusal = why_refused(sent, now)
    if refusal is not None:
        raise ProblemError("invalid_request", f"readings: {refusal}")
    return [PackedReadings(each.seq, each.times[0], each.times[-1], pack_record(each)) for each in sent.records]


def why_refused(sent: NodeReadings, now: datetime) -> str | None:
    """Why these readings cannot be stored; None: they can."""
    if not 0 <= sent.spool <= _MAX_SPOOL:
        return f"spool {sent.spool} is not between 0 and {_MAX_SPOOL}"
    if len(sent.records) > MOST_RECORDS:
        return f"{len(sent.records)} records in one upload; the limit is {MOST_RECORDS}"
    latest, before = (now + LONGEST_AHEAD).timestamp(), 0
    for record in sent.records:
        if record.seq <= before:
            return f"record {record.seq} follows record {before}; numbers grow from 1"
        before = record.seq
        if (why := _why_unfit(record, latest)) is not None:
            return f"record {record.seq}: {why}"
    return None


def _why_unfit(record: ReadingRecord, latest: float) -> str | None:
    times, count = record.times, len(record.times)
    if not 1 <= count <= MAX_READINGS:
        return f"{count} readings; between 1 and {MAX_READINGS} are taken"
    if not all(math.isfinite(time) and 0 <= time <= latest for time in times) or sorted(times) != times:
        return f"times {times[0]} to {times[-1]} do not grow, or are more than {LONGEST_AHEAD.days} day ahead: is the node's clock right?"
    if len(record.columns) > MAX_SUBJECTS:
        return f"readings of {len(record.columns)} subjects; the limit is {MAX_SUBJECTS}"
    for subject, metrics in record.columns.items():
        if len(subject) > MAX_SUBJECT_CHARACTERS or "\0" in subject:
            return f"subject {subject[:20]!r}... of {len(subject)} characters; the limit is {MAX_SUBJECT_CHARACTERS}, and NUL is none"
        known = metrics_of(subject)
        for name, column in metrics.items():
            if len(column) != count:
                return f"{len(column)} values of {subject} {name[:64]} for {count} times"
            if name in known and not all(value is None or abs(value) <= MAX_STEPS * known[name].step for value in column):
                return f"a value of {subject} {name} is not a number of at most {MAX_STEPS * known[name].step:g}"
    return None
