"""Deletes data beyond its age, or when the database is too large: each function is one part of a pass of `loops/storage.py`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.services.artifacts import stored_artifacts
from paceline.api.services.lifecycle import events
from paceline.api.services.storage import files, readings
from paceline.api.services.storage.keeping import JobTurns, RetentionSweep
from paceline.cluster.history.storage import CURVES, KeepPolicy, Removal, StorageKind, StoredData, eviction_order, excess
from paceline.db.models.artifacts import ArtifactRow
from paceline.db.models.storage import StoredDataRow
from paceline.db.repositories import aged, deletes, rollups, storage
from paceline.db.repositories import events as event_rows
from paceline.db.repositories.artifact_files import FILE
from paceline.monitoring.words import counted

logger = logging.getLogger(__name__)
#: Jobs of one kind that are looked at together.
CANDIDATES = 200
#: Of a kind of data, beside them: who fills the database adds to it all the time.
LARGEST = 20
BATCH = 50
#: Kinds of artifacts whose removal is told for a job together, and one by one.
GRADIENTS, TOLD = frozenset({"gradients", "snapshot"}), frozenset({"trace", FILE})
#: Readings that stay however little room there is.
SPARED_READINGS = timedelta(hours=1)
EVENTS_AT_ONCE = CHECKPOINTS_AT_ONCE = 1_000
#: Of one job, however long it lives: the newest generations whose ranks stay, and the newest events of ranks' ends and of checkpoints.
MAX_GENERATIONS, MAX_REPEATED_EVENTS = 200, 20_000
MARK_EVERY = timedelta(hours=1)
EVERY_HOUR = "tried again every hour"
#: A file that has been on its way for longer is given up; sooner where its node is away.
ARRIVAL, ARRIVAL_FROM_LOST = timedelta(days=7), timedelta(days=1)


async def by_age(sweep: RetentionSweep, policy: KeepPolicy) -> None:
    """Delete points, lines and readings that are too old, and the curves of jobs that ended too long ago."""
    await readings.drop_old(sweep.services, sweep.pace, sweep.now, policy.readings)
    with sweep.turns("delete what is too old of its points, lines and curves") as turns:
        for kind, age in ((StorageKind.POINTS, policy.points), (StorageKind.LINES, policy.lines)):
            await _old_rows(sweep, turns, kind, age)
        why = f"older than {policy.curves.days} days"
        async for page in _pages(sweep.services, CURVES, before=sweep.now - policy.curves):
            for row in page:
                if row.ended and not sweep.pace.over:
                    await turns.take(row.job_id, partial(sweep.drop, row.job_id, row.kind, why))
            if sweep.pace.over:
                break


async def _old_rows(sweep: RetentionSweep, turns: JobTurns, kind: StorageKind, age: timedelta) -> None:
    """Delete the points or lines that are older than `age`, those of the job with the oldest first."""
    while not sweep.pace.over:
        async with sweep.services.metrics.read() as session:
            mark = await storage.mark_before(session, sweep.now - age)
            up_to = 0 if mark is None else mark.points if kind is StorageKind.POINTS else mark.lines
            up_to = min(up_to, await rollups.made_to(session)) if kind is StorageKind.POINTS else up_to
            job_id = await storage.oldest_owner(session, kind, up_to, besides=turns.failed)
        if job_id is None:
            return
        await turns.take(job_id, partial(sweep.drop, job_id, kind, f"older than {age.days} days", up_to=up_to))


async def by_size(sweep: RetentionSweep, policy: KeepPolicy) -> None:
    """Delete data in the order of eviction while there is more than the policy allows."""
    async with sweep.services.metrics.read() as session:
        total = sum(size for _, size in (await storage.by_kind(session)).values())
        recent = await storage.mark_before(session, sweep.now - policy.recent)
    total -= await readings.evict(sweep.services, sweep.pace, sweep.now, SPARED_READINGS, excess(total, policy))
    tried: set[Removal] = set()
    with sweep.turns("delete data of it to make room") as turns:
        while (left := excess(total, policy)) and not sweep.pace.over:
            removal = next((each for each in eviction_order(await _candidates(sweep.services), policy) if each not in tried), None)
            if removal is None:
                logger.warning("%d bytes of points, curves and lines are stored, and nothing more may go: raise PACELINE_KEEP_SIZE", total)
                return
            tried.add(removal)
            up_to = None
            if removal.spare_recent and policy.recent:
                up_to = 0 if recent is None else recent.points if removal.kind == StorageKind.POINTS else recent.lines
            most = left if removal.most is None else min(left, removal.most)
            drop = partial(sweep.drop, removal.job_id, removal.kind, removal.why, bytes=most, up_to=up_to)
            total -= await turns.take(removal.job_id, drop) or 0


async def _candidates(services: Services) -> list[StoredData]:
    """The oldest data of each kind, as far as that of an ended job, any number of living jobs' being older; and the largest."""
    found: dict[tuple[str, str], StoredData] = {}
    for kind in (*StorageKind, *CURVES):
        async for page in _pages(services, (kind,)):
            found |= {(each.job_id, each.kind): each for each in page}
            if any(each.ended for each in page):
                break
        async with services.metrics.read() as session:
            largest = await storage.most_stored(session, kind, LARGEST)
        for each in await _with_ends(services, [(row.job_id, row.kind, row.bytes) for row in largest]):
            found.setdefault((each.job_id, each.kind), each)
    return list(found.values())


async def _pages(services: Services, kinds: Sequence[str], before: datetime | None = None) -> AsyncIterator[list[StoredData]]:
    """Read the data of these kinds, that with the oldest additions first, a page at a time."""
    rows: list[StoredDataRow] = []
    while True:
        async with services.metrics.read() as session:
            rows = await storage.least_recent(session, kinds, CANDIDATES, before=before, after=rows[-1] if rows else None)
        yield await _with_ends(services, [(row.job_id, row.kind, row.bytes) for row in rows])
        if len(rows) < CANDIDATES:
            return


async def _with_ends(services: Services, found: list[tuple[str, str, int]]) -> list[StoredData]:
    async with services.control.read() as session:
        ended = await aged.ended_jobs(session, {job_id for job_id, _, _ in found})
    return [StoredData(job_id, kind, size, job_id in ended) for job_id, kind, size in found]


# --- once an hour


async def mark_arrival(services: Services, now: datetime, policy: KeepPolicy) -> bool:
    """Note how far the tables are, once an hour. Returns whether it was time."""
    async with services.metrics.read() as session:
        newest = await storage.newest_mark(session)
    if newest is not None and timedelta(0) <= now - newest.time < MARK_EVERY:
        return False
    async with services.control.read() as session:
        seq = await event_rows.newest_seq(session)
    forget = now - max(policy.points, policy.lines, policy.events) - timedelta(days=1)
    async with services.metrics.write() as session:
        await storage.add_mark(session, now, seq, forget)
    return True


async def old_events(sweep: RetentionSweep, policy: KeepPolicy) -> None:
    async with sweep.services.metrics.read() as session:
        mark = await storage.mark_before(session, sweep.now - policy.events)
    reached: int | None = 0
    while mark is not None and reached is not None and not sweep.pace.over:
        async with sweep.services.write() as session:
            reached = await aged.drop_events(session, reached, mark.events, EVENTS_AT_ONCE)


async def repeated_events(sweep: RetentionSweep) -> None:
    """Delete the oldest events of ranks' ends and of checkpoints of a job that lives through ever more of them."""
    async with sweep.services.control.read() as session:
        jobs = await aged.living_jobs_with_events(session, MAX_REPEATED_EVENTS)
    with sweep.turns("delete old events of its ranks and checkpoints", EVERY_HOUR) as turns:
        for job_id in jobs:
            await turns.take(job_id, partial(_drop_repeated, sweep, job_id))


async def _drop_repeated(sweep: RetentionSweep, job_id: str) -> int:
    gone, total = EVENTS_AT_ONCE, 0
    while gone == EVENTS_AT_ONCE and not sweep.pace.over:
        async with sweep.services.write() as session:
            gone = await aged.drop_repeated_events(session, job_id, MAX_REPEATED_EVENTS, EVENTS_AT_ONCE)
        total += gone
    return total


async def old_checkpoints(sweep: RetentionSweep, policy: KeepPolicy) -> None:
    """Delete the records of deleted checkpoints that are as old as events may be: what was saved lies nowhere any more."""
    gone = CHECKPOINTS_AT_ONCE
    while gone == CHECKPOINTS_AT_ONCE and not sweep.pace.over:
        async with sweep.services.write() as session:
            gone = await aged.drop_checkpoints(session, sweep.now - policy.events, CHECKPOINTS_AT_ONCE)


async def old_ranks(sweep: RetentionSweep, policy: KeepPolicy) -> None:
    """Delete ranks of earlier generations of ended jobs; the newest generation's stay with the job."""
    with sweep.turns("delete ranks of its earlier generations", EVERY_HOUR) as turns:
        while not sweep.pace.over:
            async with sweep.services.control.read() as session:
                jobs = await aged.jobs_with_finished_ranks(session, sweep.now - policy.ranks, BATCH, besides=turns.failed)
            if not jobs:
                return
            for job_id, generation in jobs:
                await turns.take(job_id, partial(_drop_ranks, sweep, job_id, generation))


async def ranks_of_many_generations(sweep: RetentionSweep) -> None:
    """Delete ranks of all but a job's newest generations, also while it lives."""
    done: set[str] = set()
    with sweep.turns("delete ranks of its many generations", EVERY_HOUR) as turns:
        while not sweep.pace.over:
            async with sweep.services.control.read() as session:
                jobs = await aged.jobs_with_ranks_of_generations(session, MAX_GENERATIONS, BATCH, besides=turns.failed | done)
            if not jobs:
                return
            for job_id, first_kept in jobs:
                await turns.take(job_id, partial(_drop_ranks, sweep, job_id, first_kept))
                done.add(job_id)


async def _drop_ranks(sweep: RetentionSweep, job_id: str, generation: int) -> bool:
    async with sweep.services.write() as session:
        left = await aged.drop_ranks(session, job_id, generation)
    async with sweep.pace.turn(sweep.services) as points:
        await deletes.forget_marks(points, job_id, generation, keep=left)
    return True


async def old_artifacts(sweep: RetentionSweep, policy: KeepPolicy) -> None:
    """Delete files that are too old, files that never arrived, and contents without a row."""
    now = sweep.now
    why = f"older than {policy.artifacts.days} days"
    with sweep.turns("delete its old files", EVERY_HOUR) as turns:
        await _forget_all(sweep, turns, why, lambda session: aged.old_artifacts(session, now - policy.artifacts, BATCH, turns.failed))
        why = "the rest of it never came from its node"
        long_ago, from_lost = now - ARRIVAL, now - ARRIVAL_FROM_LOST
        await _forget_all(sweep, turns, why, lambda session: aged.stuck_artifacts(session, long_ago, from_lost, BATCH, turns.failed))
        await files.drop_old(sweep, turns, policy.artifacts)
    await _orphans(sweep)


async def _forget_all(
    sweep: RetentionSweep, turns: JobTurns, why: str, find: Callable[[AsyncSession], Awaitable[Sequence[ArtifactRow]]]
) -> None:
    """Delete the artifacts that `find` returns, a batch at a time and at least one batch, until there are no more or the pass is over. A node
    that comes back with one may offer it again. A trace or a file has an event of its own; of gradients, of which there may be thousands, a
    job has one event; media, refusals and notes of limits go without."""
    gradients: dict[str, list[int]] = {}  # their sizes, by job
    while True:
        async with sweep.services.control.read() as session:
            rows = await find(session)
        for row in rows:
            if await turns.take(row.job_id, partial(_forget, sweep, row, why)) and row.error is None and row.kind in GRADIENTS:
                gradients.setdefault(row.job_id, []).append(row.bytes)
        if len(rows) < BATCH or sweep.pace.over:
            break
    for job_id, sizes in gradients.items():
        await _tell_gradients(sweep, job_id, sizes, why)


async def _forget(sweep: RetentionSweep, row: ArtifactRow, why: str) -> bool:
    await stored_artifacts.remove(sweep.services, row)
    if row.error is None and row.kind in TOLD:
        await _tell(sweep, row, why)
    return True


async def _tell(sweep: RetentionSweep, row: ArtifactRow, why: str) -> None:
    what = "trace" if row.path is None else "file"
    subject = f"the trace of steps {row.first_step} to {row.last_step} of rank {row.rank}" if row.path is None else f"the file {row.path}"
    async with sweep.services.write() as session:
        await events.record(
            session,
            type=f"job.{what}_removed",
            actor=SYSTEM,
            cause=why,
            message=f"{subject} was removed: {why}",
            job_id=row.job_id,
            generation=row.generation,
            data={"artifact_id": row.id, "rank": row.rank, "bytes": row.bytes},
            time=sweep.now,
        )


async def _tell_gradients(sweep: RetentionSweep, job_id: str, sizes: Sequence[int], why: str) -> None:
    async with sweep.services.write() as session:
        await events.record(
            session,
            type="job.gradients_removed",
            actor=SYSTEM,
            cause=why,
            message=f"{counted(len(sizes), 'record')} of gradients ({sum(sizes):,} bytes) {'was' if len(sizes) == 1 else 'were'} removed: {why}",
            job_id=job_id,
            data={"records": len(sizes), "bytes": sum(sizes)},
            time=sweep.now,
        )


async def _orphans(sweep: RetentionSweep) -> None:
    """Contents that came while their row was being removed. A row is always made before its contents, so contents without one have lost
    it."""
    async with sweep.services.metrics.read() as session:
        stored = await deletes.stored_artifacts(session)
    for first in range(0, len(stored), CANDIDATES):
        some = stored[first : first + CANDIDATES]
        async with sweep.services.control.read() as session:
            known = await aged.known_artifacts(session, some)
        for artifact_id in set(some) - known:
            await stored_artifacts.drop_contents(sweep.services, artifact_id)
