"""The one writer of points and log lines: uploads that arrive together are stored in one transaction (group commit).

stored = await writer.store(batches)      returns once it is durable, with the new high-water marks

The queue is bounded by records and by bytes; an upload that waited too long leaves the queue before it is answered. A group that
the database refuses is stored upload by upload, and such an upload in halves, down to the record at fault.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.background import in_background
from paceline.api.core.bus import Bus
from paceline.api.errors import ProblemError
from paceline.api.services.ingest import isolation
from paceline.api.services.ingest.selection import StoredBatches, UploadChanges, add_batch, leave_out_names, streams_with_news
from paceline.db.errors import DatabaseError
from paceline.db.repositories import ingest as repository
from paceline.db.repositories import storage
from paceline.db.repositories.ingest import Stream
from paceline.db.session import Database
from paceline.monitoring.points import TRAINER_NAMES, RankBatch

logger = logging.getLogger(__name__)
MAX_GROUP_RECORDS = 20_000
MAX_QUEUED_RECORDS = 100_000
MAX_QUEUED_BYTES = 64 << 20
#: As long as an agent waits for its answer.
STORE_SECONDS = 30.0
MAX_KNOWN_NAMES = 100_000
#: Metric names of one job, over all its ranks, beside those that the trainer has; values of further names are left out.
MAX_NAMES_PER_JOB = 1_000
#: A group of more records is looked through in a thread.
MAX_RECORDS_IN_LOOP = 200


@dataclass(frozen=True, eq=False)
class QueuedUpload:
    batches: Sequence[RankBatch]
    bytes: int
    stored: asyncio.Future[StoredBatches]

    @property
    def size(self) -> int:
        return sum(len(batch.metrics) + len(batch.logs) for batch in self.batches)


@dataclass
class IngestCounters:
    """The counts since this process started; for the exposition."""

    records: int = 0
    log_lines: int = 0
    transactions: int = 0


@dataclass
class MetricsWriter:
    database: Database
    bus: Bus
    now: Callable[[], datetime]
    counters: IngestCounters = field(default_factory=IngestCounters)
    #: Told how many seconds each upload has waited until it was stored.
    waited: Callable[[float], None] = field(default=lambda _: None)
    #: Told how many records and lines of each group could not be stored.
    count_refused: Callable[[int], None] = field(default=lambda _: None)
    _queue: deque[QueuedUpload] = field(default_factory=deque)
    _queued_records: int = 0
    _queued_bytes: int = 0
    _work: asyncio.Event = field(default_factory=asyncio.Event)
    _known_names: set[tuple[str, str]] = field(default_factory=set)

    async def store(self, batches: Sequence[RankBatch], *, bytes: int = 0) -> StoredBatches:
        """The marks of every stream in `batches` after storing what was new in them, and what could not be stored. `bytes`: of
        the body they came in. Raises ProblemError `busy` when the queue is full, or when it took too long."""
        pending = QueuedUpload(batches, bytes, asyncio.get_running_loop().create_future())
        began = time.monotonic()
        self._join_queue(pending)
        try:
            async with asyncio.timeout(STORE_SECONDS):
                stored = await pending.stored
        except TimeoutError:
            raise busy(f"it was not stored within {STORE_SECONDS:.0f} s") from None
        finally:
            self._leave_queue(pending)
        self.waited(time.monotonic() - began)
        return stored

    @property
    def queued(self) -> tuple[int, int]:
        """(records, bytes) that wait to be stored."""
        return self._queued_records, self._queued_bytes

    def _join_queue(self, pending: QueuedUpload) -> None:
        records, bytes = self._queued_records + pending.size, self._queued_bytes + pending.bytes
        if self._queue and (records > MAX_QUEUED_RECORDS or bytes > MAX_QUEUED_BYTES):
            limits = f"the limits are {MAX_QUEUED_RECORDS} and {MAX_QUEUED_BYTES}"
            raise busy(f"{self._queued_records} records of {self._queued_bytes} bytes wait to be stored; {limits}")
        self._queue.append(pending)
        self._queued_records, self._queued_bytes = records, bytes
        self._work.set()

    def _leave_queue(self, pending: QueuedUpload) -> None:
        if pending in self._queue:
            self._queue.remove(pending)
            self._forget(pending)

    def _forget(self, pending: QueuedUpload) -> None:
        self._queued_records -= pending.size
        self._queued_bytes -= pending.bytes

    def running(self) -> AbstractAsyncContextManager[None]:
        return in_background("metrics-writer", self._run)

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            await self._store_group(self._take_group())
            if not self._queue:
                self._work.clear()

    def _take_group(self) -> list[QueuedUpload]:
        group: list[QueuedUpload] = []
        size = 0
        while self._queue and size < MAX_GROUP_RECORDS:
            group.append(self._queue.popleft())
            self._forget(group[-1])
            size += group[-1].size
        return group

    async def _store_group(self, group: Sequence[QueuedUpload]) -> None:
        """Store a group of uploads. A database that is away fails the whole group: each agent keeps its records and sends them again."""
        try:
            stored = await self._commit([batch for pending in group for batch in pending.batches])
        except DatabaseError as error:
            for pending in group:
                _fail(pending, error)
        except Exception:
            logger.exception("a group of %d uploads could not be stored; each is stored by itself", len(group))
            for pending in group:
                await self._store_alone(pending)
        else:
            for pending in group:
                _answer(pending, stored)

    async def _store_alone(self, pending: QueuedUpload) -> None:
        try:
            _answer(pending, await isolation.store(pending.batches, self._commit))
        except Exception as error:  # noqa: BLE001 - handed on to the waiting request, which raises it
            _fail(pending, error)

    async def _commit(self, batches: Sequence[RankBatch]) -> StoredBatches:
        streams = list(dict.fromkeys(stream for batch in batches for stream in streams_with_news(batch)))
        async with self.database.write() as session:
            await repository.lock(session)
            before = await repository.marks(session, streams)
            changes = await _changes(batches, before)
            crowded = await self._add_new_names(session, changes)
            if changes.records:
                await repository.insert_records(session, changes.records)
            if changes.logs:
                await repository.insert_log_lines(session, changes.logs)
            if changes.marks:
                await repository.set_marks(session, changes.marks)
            await storage.add(session, changes.sizes, self.now())
        self._remember(changes)
        return StoredBatches(before | changes.marks, changes.refused, crowded)

    async def _add_new_names(self, session: AsyncSession, changes: UploadChanges) -> dict[str, str]:
        """Add the names that are new; those beyond a job's limit are left out, and one of each such job is returned."""
        new = changes.names - self._known_names
        if not new:
            return {}
        stored = await repository.names_of(session, {job_id for job_id, _ in new})
        room: dict[str, int] = {}
        for job_id, name in stored:
            room[job_id] = room.get(job_id, MAX_NAMES_PER_JOB) - (name not in TRAINER_NAMES)
        excess: dict[tuple[str, str], None] = {}
        for job_id, name in sorted(new - stored):
            if name in TRAINER_NAMES:
                continue
            room[job_id] = room.get(job_id, MAX_NAMES_PER_JOB) - 1
            if room[job_id] < 0:
                excess[job_id, name] = None
        if excess:
            leave_out_names(changes, excess.keys())
        if added := new - stored - excess.keys():
            await repository.add_names(session, added)
        return dict(reversed(excess))

    def _remember(self, changes: UploadChanges) -> None:
        """Remember names, after the commit only."""
        if len(self._known_names) > MAX_KNOWN_NAMES:
            self._known_names.clear()
        self._known_names |= changes.names
        self.counters.records += len(changes.records)
        self.counters.log_lines += len(changes.logs)
        self.count_refused(sum(each.count for each in changes.refused))
        self.counters.transactions += 1
        topics = {bus.metrics(job) if stream == "metrics" else bus.logs(job) for job, _, _, stream in changes.marks}
        self.bus.publish(*topics)


def busy(why: str) -> ProblemError:
    return ProblemError("busy", f"{why}; send it again", headers={"Retry-After": "1"})


async def _changes(batches: Sequence[RankBatch], marks: dict[Stream, int]) -> UploadChanges:
    if sum(len(batch.metrics) + len(batch.logs) for batch in batches) <= MAX_RECORDS_IN_LOOP:
        return _check_records(batches, marks)
    return await asyncio.to_thread(_check_records, batches, marks)


def _check_records(batches: Sequence[RankBatch], marks: dict[Stream, int]) -> UploadChanges:
    changes = UploadChanges()
    for batch in batches:
        add_batch(changes, batch, marks)
    return changes


def _answer(pending: QueuedUpload, stored: StoredBatches) -> None:
    if not pending.stored.done():
        pending.stored.set_result(stored)


def _fail(pending: QueuedUpload, error: Exception) -> None:
    if not pending.stored.done():
        pending.stored.set_exception(error)
