"""Deletes data that is no longer kept: a few thousand rows in a transaction, with a rest after each, so that storing goes on beside it. A job
whose data cannot be deleted holds up no other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.core.troubles import Subject
from paceline.api.services.lifecycle import events
from paceline.api.services.lifecycle.isolation import TRIED_AGAIN, PhaseTurns
from paceline.cluster.history.storage import BUCKET_BYTES, CURVES, LEVEL_OF, StorageKind, curve_kind, loss
from paceline.db.repositories import aged, deletes, storage
from paceline.db.repositories.deletes import DeletedAmount

#: What one transaction aims at; rows are adapted to it.
TURN_SECONDS = 0.025
LEAST_ROWS, FIRST_ROWS, MOST_ROWS = 200, 1_000, 5_000
#: The length of one pass, its rests included; what is left is for the next.
PASS_SECONDS = 3.0
#: A job that ages out day by day says so once a day.
TELL_AGAIN = timedelta(days=1)

T = TypeVar("T")


@dataclass
class DeletionPace:
    """How many rows a transaction deletes, and how long a pass goes on."""

    ends_at: float
    rows: int = FIRST_ROWS

    @classmethod
    def of(cls, seconds: float) -> DeletionPace:
        """The pace of a pass that begins now."""
        return cls(time.monotonic() + seconds)

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.ends_at

    @asynccontextmanager
    async def turn(self, services: Services) -> AsyncIterator[AsyncSession]:
        """One transaction of the metrics database, and a rest as long as it took."""
        async with services.metrics.write() as session:
            began = time.monotonic()
            yield session
        took = time.monotonic() - began
        self.rows = min(MOST_ROWS, max(LEAST_ROWS, int(self.rows * min(2.0, TURN_SECONDS / max(took, 1e-4)))))
        await asyncio.sleep(took)


@dataclass
class DeletedData:
    """The deleted data of one kind of a job in this pass: an accumulator."""

    why: str
    rows: int = 0
    bytes: int = 0
    to_step: int | None = None

    def add(self, gone: DeletedAmount) -> None:
        self.rows, self.bytes = self.rows + gone.rows, self.bytes + gone.bytes
        if gone.to_step is not None:
            self.to_step = max(self.to_step or 0, gone.to_step)


@dataclass
class JobTurns:
    """The turns of jobs in one part of a pass. `failed`: jobs whose turn raised, now or a moment ago; the rest of the part leaves them out."""

    turns: PhaseTurns
    failed: set[str] = field(default_factory=set)

    @property
    def task(self) -> str:
        return self.turns.task

    async def take(self, job_id: str, work: Callable[[], Awaitable[T]]) -> T | None:
        """The result of `work`, which is never None. None where the job is held up."""
        result = None if job_id in self.failed else await self.turns.take(Subject("job", job_id), work)
        if result is None:
            self.failed.add(job_id)
        return result


@dataclass
class RetentionSweep:
    """One pass over the stored data; `losses` by job and kind."""

    services: Services
    now: datetime
    pace: DeletionPace
    losses: dict[tuple[str, str], DeletedData] = field(default_factory=dict)

    @contextmanager
    def turns(self, task: str, outlook: str = TRIED_AGAIN) -> Iterator[JobTurns]:
        """The turns of one part of the pass. A job that failed in an earlier pass, and had nothing to do in this one, is forgotten."""
        turns = JobTurns(PhaseTurns(self.services, task, self.now, outlook))
        yield turns
        if not self.pace.over:
            self.services.troubles.forget_all_but(task, turns.failed)

    async def drop(self, job_id: str, kind: str, why: str, *, bytes: int | None = None, up_to: int | None = None) -> int:
        """Delete the oldest data of one kind of a job, until there is no more, `bytes` are gone, or the pass is over. Returns the
        deleted bytes."""
        lost = self.losses.setdefault((job_id, kind), DeletedData(why))
        before = lost.bytes
        lost.why = lost.why if lost.rows else why
        if kind in LEVEL_OF:
            await self._drop_level(job_id, LEVEL_OF[kind], lost, bytes)
        else:
            await self._drop_appended(job_id, StorageKind(kind), lost, bytes, up_to)
        return lost.bytes - before

    async def _drop_appended(self, job_id: str, kind: StorageKind, lost: DeletedData, bytes: int | None, up_to: int | None) -> None:
        left = bytes
        while not self.pace.over and (left is None or left > 0):
            async with self.pace.turn(self.services) as session:
                gone = await deletes.drop_oldest(session, job_id, kind, rows=self.pace.rows, bytes=left, up_to=up_to)
            lost.add(gone)
            left = None if left is None else left - gone.bytes
            if not gone.rows:
                return

    async def _drop_level(self, job_id: str, level: int, lost: DeletedData, bytes: int | None) -> None:
        """Delete the same steps of every name and rank, so that one step says how far it went."""
        async with self.services.control.read() as session:
            ranks = range(max(1, await aged.rank_count(session, job_id)))
        async with self.services.metrics.read() as session:
            names = await deletes.names(session, job_id)
        left = bytes
        while not self.pace.over and (left is None or left > 0):
            async with self.services.metrics.read() as session:
                buckets = await deletes.bucket_range(session, job_id, level, ranks)
            if buckets is None:
                await self._clear_count(job_id, level)
                return
            gone = await self._drop_window(job_id, level, names, ranks, buckets, left)
            lost.add(gone)
            left = None if left is None else left - gone.bytes

    async def _clear_count(self, job_id: str, level: int) -> None:
        """Set the count of an empty level to zero: any rest of it was an estimate."""
        async with self.services.metrics.read() as session:
            counted = (await storage.of_job(session, job_id)).get(curve_kind(level))
        if counted is not None and counted.bytes:
            async with self.pace.turn(self.services) as session:
                await deletes.clear_count(session, job_id, level)

    async def _drop_window(
        self, job_id: str, level: int, names: list[str], ranks: range, buckets: tuple[int, int], left: int | None
    ) -> DeletedAmount:
        """Delete the lowest buckets: at most what makes up `left`. A transaction takes as many names as its rows allow: one each would keep
        the jobs that come with a thousand names ahead of what deletes them."""
        first, last = buckets
        width = max(1, self.pace.rows // len(ranks))
        if left is not None:
            width = min(width, -(-left // (BUCKET_BYTES * len(ranks) * len(names))))
        window = range(first, min(first + width, last + 1))
        found = DeletedData("")
        at_once = max(1, self.pace.rows // (len(ranks) * len(window)))
        for start in range(0, len(names), at_once):
            async with self.pace.turn(self.services) as session:
                found.add(await deletes.drop_buckets(session, job_id, names[start : start + at_once], level, ranks, window))
        return DeletedAmount(found.rows, found.bytes, found.to_step)

    async def drop_everything(self, job_id: str, why: str) -> bool:
        """Delete all points, lines and curves of a job. Returns whether nothing is left: points whose roll-ups are not made stay. The names
        of its metrics stay: writers remember that they have stored them."""
        for kind in (*StorageKind, *CURVES):
            await self.drop(job_id, kind, why)
        async with self.services.metrics.read() as session:
            left = await storage.with_data(session, [job_id])
        return not left and not self.pace.over

    def forget(self, job_id: str) -> None:
        """Report nothing of this job: its removal has an event of its own at its end."""
        for key in [key for key in self.losses if key[0] == job_id]:
            del self.losses[key]

    async def record_losses(self) -> None:
        """Record one event for each job that lost data, once a day at most."""
        jobs = {job_id for (job_id, _), lost in self.losses.items() if lost.rows}
        with self.turns("tell what was deleted of it", "its history lacks that") as turns:
            for job_id in sorted(jobs):
                await turns.take(job_id, partial(self._record_losses_of, job_id))

    async def _record_losses_of(self, job_id: str) -> bool:
        mine = {kind: lost for (job, kind), lost in self.losses.items() if job == job_id and lost.rows}
        async with self.services.metrics.read() as session:
            told = [row.told_at for kind, row in (await storage.of_job(session, job_id)).items() if kind in mine]
        if told and all(each is not None and self.now - each < TELL_AGAIN for each in told):
            return False
        async with self.services.metrics.write() as session:
            await storage.note_reported(session, job_id, list(mine), self.now)
        async with self.services.write() as session:
            await self._record(session, job_id, mine)
        return True

    async def _record(self, session: AsyncSession, job_id: str, lost: dict[str, DeletedData]) -> None:
        await events.record(
            session,
            type="job.data_removed",
            actor=SYSTEM,
            cause=next(iter(lost.values())).why,
            message="; ".join(loss(kind, each.rows, each.to_step, each.why) for kind, each in lost.items()),
            job_id=job_id,
            data={"removed": {kind: {"rows": each.rows, "bytes": each.bytes, "to_step": each.to_step} for kind, each in lost.items()}},
            time=self.now,
        )
