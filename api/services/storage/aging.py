"""Deletes data beyond its age, or when the database is too large: each function is one part of a pass of `loops/storage.py`."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.services.artifacts import stored_artifacts
from paceline.api.services.lifecycle import events
from paceline.api.services.storage import files, readings
from paceline.api.services.storage.keeping import Sweep
from paceline.cluster.history.storage import CURVES, KeepPolicy, Removal, StorageKind, StoredData, eviction_order, excess
from paceline.db.models.artifacts import ArtifactRow
from paceline.db.repositories import aged, deletes, rollups, storage
from paceline.db.repositories import events as event_rows

logger = logging.getLogger(__name__)
#: Jobs of one kind that are looked at together.
CANDIDATES = 200
BATCH = 50
#: Readings that stay however little room there is.
SPARED_READINGS = timedelta(hours=1)
EVENTS_AT_ONCE = 1_000
MARK_EVERY = timedelta(hours=1)
#: A file that has been on its way for longer is given up; sooner where its node is away.
ARRIVAL, ARRIVAL_FROM_LOST = timedelta(days=7), timedelta(days=1)


async def by_age(sweep: Sweep, policy: KeepPolicy) -> None:
    """Delete points, lines and readings that are too old, and the curves of jobs that ended too long ago."""
    await readings.drop_old(sweep.services, sweep.pace, sweep.now, policy.readings)
    for kind, age in ((StorageKind.POINTS, policy.points), (StorageKind.LINES, policy.lines)):
        why = f"older than {age.days} days"
        while not sweep.pace.over:
            async with sweep.services.metrics.read() as session:
                mark = await storage.mark_before(session, sweep.now - age)
                up_to = 0 if mark is None else mark.points if kind is StorageKind.POINTS else mark.lines
                up_to = min(up_to, await rollups.made_to(session)) if kind is StorageKind.POINTS else up_to
                job_id = await storage.oldest_owner(session, kind, up_to)
            if job_id is None:
                break
            await sweep.drop(job_id, kind, why, up_to=up_to)
    async with sweep.services.metrics.read() as session:
        old = await storage.least_recent(session, CURVES, CANDIDATES, before=sweep.now - policy.curves)
    for row in await _with_ends(sweep.services, [(row.job_id, row.kind, row.bytes) for row in old]):
        if row.ended and not sweep.pace.over:
            await sweep.drop(row.job_id, row.kind, f"older than {policy.curves.days} days")


async def by_size(sweep: Sweep, policy: KeepPolicy) -> None:
    """Delete data in the order of eviction while there is more than the policy allows."""
    async with sweep.services.metrics.read() as session:
        total = sum(size for _, size in (await storage.by_kind(session)).values())
        recent = await storage.mark_before(session, sweep.now - policy.recent)
    total -= await readings.evict(sweep.services, sweep.pace, sweep.now, SPARED_READINGS, excess(total, policy))
    tried: set[Removal] = set()
    while (left := excess(total, policy)) and not sweep.pace.over:
        removal = next((each for each in eviction_order(await _candidates(sweep.services), policy) if each not in tried), None)
        if removal is None:
            logger.warning("%d bytes of points, curves and lines are stored, and nothing more may go: raise PACELINE_KEEP_SIZE", total)
            return
        tried.add(removal)
        up_to = None
        if removal.spare_recent:
            up_to = 0 if recent is None else recent.points if removal.kind == StorageKind.POINTS else recent.lines
        total -= await sweep.drop(removal.job_id, removal.kind, removal.why, bytes=left, up_to=up_to)


async def _candidates(services: Services) -> list[StoredData]:
    found: list[tuple[str, str, int]] = []
    async with services.metrics.read() as session:
        for kind in (*StorageKind, *CURVES):
            found += [(row.job_id, row.kind, row.bytes) for row in await storage.least_recent(session, (kind,), CANDIDATES)]
    return await _with_ends(services, found)


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


async def old_events(sweep: Sweep, policy: KeepPolicy) -> None:
    async with sweep.services.metrics.read() as session:
        mark = await storage.mark_before(session, sweep.now - policy.events)
    reached: int | None = 0
    while mark is not None and reached is not None and not sweep.pace.over:
        async with sweep.services.write() as session:
            reached = await aged.drop_events(session, reached, mark.events, EVENTS_AT_ONCE)


async def old_ranks(sweep: Sweep, policy: KeepPolicy) -> None:
    """Delete ranks of earlier generations of ended jobs; the newest generation's stay with the job."""
    while not sweep.pace.over:
        async with sweep.services.control.read() as session:
            jobs = await aged.jobs_with_finished_ranks(session, sweep.now - policy.ranks, BATCH)
        if not jobs:
            return
        for job_id, generation in jobs:
            async with sweep.services.write() as session:
                left = await aged.drop_ranks(session, job_id, generation)
            async with sweep.pace.turn(sweep.services) as points:
                await deletes.forget_marks(points, job_id, generation, keep=left)


async def old_artifacts(sweep: Sweep, policy: KeepPolicy) -> None:
    """Delete files that are too old, files that never arrived, and contents without a row."""
    services, now = sweep.services, sweep.now
    async with services.control.read() as session:
        old = await aged.old_artifacts(session, now - policy.artifacts, BATCH)
        stuck = await aged.stuck_artifacts(session, now - ARRIVAL, now - ARRIVAL_FROM_LOST, BATCH)
    for row in old:
        await _forget(services, row, f"older than {policy.artifacts.days} days", now)
    for row in stuck:
        await _forget(services, row, "the rest of it never came from its node", now)
    await files.drop_old(sweep, policy.artifacts)
    await _orphans(sweep)


async def _forget(services: Services, row: ArtifactRow, why: str, now: datetime) -> None:
    """Delete the row of a file that never arrived. A node that comes back with the file may offer it again."""
    await stored_artifacts.remove(services, row)
    if row.kind == "media":  # there may be tens of thousands
        return
    what = "trace" if row.path is None else "file"
    subject = f"the trace of steps {row.first_step} to {row.last_step} of rank {row.rank}" if row.path is None else f"the file {row.path}"
    async with services.write() as session:
        await events.record(
            session,
            type=f"job.{what}_removed",
            actor=SYSTEM,
            cause=why,
            message=f"{subject} was removed: {why}",
            job_id=row.job_id,
            generation=row.generation,
            data={"artifact_id": row.id, "rank": row.rank, "bytes": row.bytes},
            time=now,
        )


async def _orphans(sweep: Sweep) -> None:
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
