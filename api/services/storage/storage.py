"""Reports what is stored, the space it takes, and the room that is left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.disk import Disk
from paceline.api.schemas.storage import DiskState, Storage, StoredJob, StoredKind
from paceline.cluster.history.node_readings import READING_KINDS
from paceline.cluster.history.storage import CURVES, StorageKind
from paceline.cluster.states import TERMINAL_JOB_STATES
from paceline.db.repositories import aged
from paceline.db.repositories import storage as rows

LARGEST = 20
OLD_FILE = (
    "metrics.db was made by an earlier version: deleted data makes room in it, but does not make the file smaller. To change that, stop the "
    "coordinator and run: sqlite3 metrics.db 'PRAGMA auto_vacuum=INCREMENTAL; VACUUM;' (needs as much free disk as the file has)"
)


async def report(services: Services, session: AsyncSession) -> Storage:
    async with services.metrics.read() as points:
        kinds = await rows.by_kind(points)
        largest = await rows.largest(points, LARGEST)
        size, free = await rows.file_bytes(points)
        shrinks = not services.metrics.is_sqlite or await rows.can_shrink(points)
    policy, disk = services.settings.keep, services.disk.state()
    return Storage(
        kinds=[*_kinds(kinds), await _artifacts("traces", session), await _artifacts("files", session)],
        stored_bytes=sum(stored for _, stored in kinds.values()),
        limit_bytes=policy.bytes or None,
        database_bytes=size,
        free_in_database_bytes=free,
        shrinks=shrinks,
        hint=None if shrinks else OLD_FILE,
        disk=None if disk is None else _disk(disk),
        policy=policy.sentences(),
        largest_jobs=await _jobs(session, largest),
    )


def _kinds(kinds: Mapping[str, tuple[int, int]]) -> list[StoredKind]:
    curves = [kinds[kind] for kind in CURVES if kind in kinds]
    readings = [kinds[kind] for kind in READING_KINDS if kind in kinds]
    points, lines = kinds.get(StorageKind.POINTS, (0, 0)), kinds.get(StorageKind.LINES, (0, 0))
    return [
        StoredKind(kind="points", rows=points[0], bytes=points[1]),
        StoredKind(kind="curves", rows=sum(count for count, _ in curves), bytes=sum(size for _, size in curves)),
        StoredKind(kind="lines", rows=lines[0], bytes=lines[1]),
        StoredKind(kind="readings", rows=sum(count for count, _ in readings), bytes=sum(size for _, size in readings)),
    ]


async def _artifacts(kind: Literal["traces", "files"], session: AsyncSession) -> StoredKind:
    count, size = await aged.artifact_bytes(session, files=kind == "files")
    return StoredKind(kind=kind, rows=count, bytes=size)


def _disk(disk: Disk) -> DiskState:
    return DiskState(free_bytes=disk.free, total_bytes=disk.total, low_bytes=disk.limit, low=disk.low)


async def _jobs(session: AsyncSession, largest: list[tuple[str, int]]) -> list[StoredJob]:
    known = await aged.names_of(session, [job_id for job_id, _ in largest])
    return [
        StoredJob(job_id=job_id, name=known[job_id][0], state=known[job_id][1], bytes=size, ended=known[job_id][1] in TERMINAL_JOB_STATES)
        for job_id, size in largest
        if job_id in known
    ]
