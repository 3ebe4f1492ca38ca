"""The one writer of points and log lines: uploads that arrive together are stored in one transaction (group commit).

reply = await writer.store(batches)      returns once it is durable, with the new high-water marks
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from api.services import bus
from api.services.background import in_background
from api.services.bus import Bus
from api.services.ingest import Changes, add_batch, streams_of
from db.repositories import ingest as repository
from db.repositories.ingest import Stream
from db.session import Database
from monitoring.points import RankBatch

MAX_GROUP_RECORDS = 20_000
MAX_KNOWN_NAMES = 100_000


@dataclass(frozen=True)
class Pending:
    batches: Sequence[RankBatch]
    stored: asyncio.Future[dict[Stream, int]]

    @property
    def size(self) -> int:
        return sum(len(batch.metrics) + len(batch.logs) for batch in self.batches)


@dataclass
class Counters:
    """Since this process started; for the exposition."""

    records: int = 0
    log_lines: int = 0
    transactions: int = 0


@dataclass
class Writer:
    database: Database
    bus: Bus
    counters: Counters = field(default_factory=Counters)
    _queue: asyncio.Queue[Pending] = field(default_factory=lambda: asyncio.Queue(maxsize=256))
    _known_names: set[tuple[str, str]] = field(default_factory=set)

    async def store(self, batches: Sequence[RankBatch]) -> dict[Stream, int]:
        """The marks of every stream in `batches` after storing what was new in them."""
        stored: asyncio.Future[dict[Stream, int]] = asyncio.get_running_loop().create_future()
        await self._queue.put(Pending(batches, stored))
        return await stored

    def running(self) -> AbstractAsyncContextManager[None]:
        return in_background("metrics-writer", self._run)

    async def _run(self) -> None:
        while True:
            group = [await self._queue.get()]
            size = group[0].size
            while size < MAX_GROUP_RECORDS and not self._queue.empty():
                group.append(self._queue.get_nowait())
                size += group[-1].size
            await self._store_group(group)

    async def _store_group(self, group: Sequence[Pending]) -> None:
        """A failure is each uploader's to see: the agent keeps its records and sends them again."""
        try:
            marks = await self._commit([batch for pending in group for batch in pending.batches])
        except Exception as error:  # noqa: BLE001 - handed on to every waiting request, which raises it
            for pending in group:
                if not pending.stored.done():
                    pending.stored.set_exception(error)
            return
        for pending in group:
            if not pending.stored.done():
                pending.stored.set_result(marks)

    async def _commit(self, batches: Sequence[RankBatch]) -> dict[Stream, int]:
        streams = list(dict.fromkeys(stream for batch in batches for stream in streams_of(batch)))
        async with self.database.write() as session:
            await repository.lock(session)
            before = await repository.marks(session, streams)
            changes = Changes()
            for batch in batches:
                add_batch(changes, batch, before)
            new_names = changes.names - self._known_names
            if changes.records:
                await repository.insert_records(session, changes.records)
                await repository.merge_rollups(session, changes.rollup_rows())
            if new_names:
                await repository.add_names(session, new_names)
            if changes.logs:
                await repository.insert_log_lines(session, changes.logs)
            if changes.marks:
                await repository.set_marks(session, changes.marks)
        self._remember(changes)
        return before | changes.marks

    def _remember(self, changes: Changes) -> None:
        """After the commit only."""
        if len(self._known_names) > MAX_KNOWN_NAMES:
            self._known_names.clear()
        self._known_names |= changes.names
        self.counters.records += len(changes.records)
        self.counters.log_lines += len(changes.logs)
        self.counters.transactions += 1
        topics = {bus.metrics(job) if stream == "metrics" else bus.logs(job) for job, _, _, stream in changes.marks}
        self.bus.publish(*topics)
