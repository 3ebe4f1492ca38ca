"""Queries for how much is stored of each job, when it arrived, and the size of the files: the metrics database."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Insert, Table, and_, delete, func, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.cluster.history.node_readings import READING_KINDS
from paceline.cluster.history.storage import StorageKind
from paceline.db.dialects import dialect_of, is_postgres
from paceline.db.models.metrics import LogLineRow, MetricRecordRow
from paceline.db.models.storage import ArrivalMarkRow, StoredDataRow

#: The tables of the metrics database, which on PostgreSQL is the same as the control database.
METRIC_TABLES = (
    "metric_records",
    "metric_rollups",
    "rollup_marks",
    "metric_names",
    "log_lines",
    "stream_marks",
    "artifact_chunks",
    "bundle_chunks",
    "stored_data",
    "node_readings",
    "node_reading_rollups",
)


# --- how much there is


async def add(session: AsyncSession, sizes: Mapping[tuple[str, str], tuple[int, int]], now: datetime) -> None:
    """Add (rows, bytes) by (job, kind) to the stored counts; in the transaction that stores the data."""
    if not sizes:
        return
    rows = [{"job_id": job, "kind": kind, "rows": n, "bytes": size, "changed_at": now} for (job, kind), (n, size) in sizes.items()]
    await session.execute(_upsert(dialect_of(session)), rows)


@functools.cache
def _upsert(dialect: Any) -> Insert:
    """The statement that adds counts. Made once: that takes longer than to execute it."""
    table = cast("Table", StoredDataRow.__table__)
    statement = dialect.insert(table)
    fresh = statement.excluded
    upsert: Insert = statement.on_conflict_do_update(
        index_elements=[table.c.job_id, table.c.kind],
        set_={"rows": table.c.rows + fresh.rows, "bytes": table.c.bytes + fresh.bytes, "changed_at": fresh.changed_at},
    )
    return upsert


async def by_kind(session: AsyncSession) -> dict[str, tuple[int, int]]:
    """(rows, bytes) of each kind."""
    query = select(StoredDataRow.kind, func.sum(StoredDataRow.rows), func.sum(StoredDataRow.bytes)).group_by(StoredDataRow.kind)
    return {kind: (int(rows), int(size)) for kind, rows, size in await session.execute(query)}


async def largest(session: AsyncSession, limit: int) -> list[tuple[str, int]]:
    """(job, bytes) of the jobs with the most stored data."""
    total = func.sum(StoredDataRow.bytes)
    of_jobs = StoredDataRow.kind.not_in(READING_KINDS)
    query = (
        select(StoredDataRow.job_id, total)
        .where(of_jobs)
        .group_by(StoredDataRow.job_id)
        .having(total > 0)
        .order_by(total.desc(), StoredDataRow.job_id)
        .limit(limit)
    )
    return [(job_id, int(size)) for job_id, size in await session.execute(query)]


async def least_recent(
    session: AsyncSession, kinds: Sequence[str], limit: int, *, before: datetime | None = None, after: StoredDataRow | None = None
) -> list[StoredDataRow]:
    """A page of the counts of these kinds, those with the oldest additions first: of additions before `before`, from behind the row `after`."""
    query = select(StoredDataRow).where(StoredDataRow.kind.in_(kinds), StoredDataRow.bytes > 0)
    if before is not None:
        query = query.where(StoredDataRow.changed_at < before)
    if after is not None:
        of_the_job = and_(StoredDataRow.job_id == after.job_id, StoredDataRow.kind > after.kind)
        later = or_(StoredDataRow.job_id > after.job_id, of_the_job)
        query = query.where(or_(StoredDataRow.changed_at > after.changed_at, and_(StoredDataRow.changed_at == after.changed_at, later)))
    order = (StoredDataRow.changed_at, StoredDataRow.job_id, StoredDataRow.kind)
    return list((await session.scalars(query.order_by(*order).limit(limit))).all())


async def most_stored(session: AsyncSession, kind: str, limit: int) -> list[StoredDataRow]:
    """The largest counts of this kind, those with the oldest additions first."""
    query = select(StoredDataRow).where(StoredDataRow.kind == kind)
    query = query.order_by(StoredDataRow.bytes.desc(), StoredDataRow.job_id).limit(limit)
    return sorted((await session.scalars(query)).all(), key=lambda row: (row.changed_at, row.job_id))


async def of_job(session: AsyncSession, job_id: str) -> dict[str, StoredDataRow]:
    """The counts of a job by kind; rows whose data has gone too."""
    return {row.kind: row for row in await session.scalars(select(StoredDataRow).where(StoredDataRow.job_id == job_id))}


async def with_data(session: AsyncSession, job_ids: Collection[str]) -> set[str]:
    """The jobs among these of which something is stored."""
    query = select(StoredDataRow.job_id).where(StoredDataRow.job_id.in_(job_ids), StoredDataRow.bytes > 0)
    return set(await session.scalars(query))


async def gone_to_steps(session: AsyncSession, job_id: str) -> dict[str, int]:
    """By kind, the highest step of which something was deleted."""
    query = select(StoredDataRow.kind, StoredDataRow.gone_to_step)
    query = query.where(StoredDataRow.job_id == job_id, StoredDataRow.gone_to_step.is_not(None))
    return {kind: step for kind, step in await session.execute(query) if step is not None}


async def note_reported(session: AsyncSession, job_id: str, kinds: Sequence[str], now: datetime) -> None:
    rows = update(StoredDataRow).where(StoredDataRow.job_id == job_id, StoredDataRow.kind.in_(kinds))
    await session.execute(rows.values(told_at=now))


async def file_bytes(session: AsyncSession) -> tuple[int, int]:
    """(bytes of the database on disk, bytes of it that are free for new rows). PostgreSQL does not tell the second: 0."""
    if is_postgres(session):
        query = (
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relname = ANY(:tables) AND relnamespace = 'public'::regnamespace"
        )
        return int(await session.scalar(text(query), {"tables": list(METRIC_TABLES)}) or 0), 0
    page, pages, free = [await session.scalar(text(f"PRAGMA {name}")) for name in ("page_size", "page_count", "freelist_count")]
    return int(page) * int(pages), int(page) * int(free)


async def free_pages(session: AsyncSession) -> int:
    """The number of free pages of an SQLite file."""
    return int(await session.scalar(text("PRAGMA freelist_count")) or 0)


async def can_shrink(session: AsyncSession) -> bool:
    """Whether the database is an SQLite file that was made with `auto_vacuum`."""
    return not is_postgres(session) and await session.scalar(text("PRAGMA auto_vacuum")) == 2


async def shrink(session: AsyncSession, pages: int) -> None:
    """Give so many free pages of an SQLite file back. The pragma gives one back at each step of its statement, and only a script is
    stepped to its end. It commits first, so nothing else may be in this transaction."""
    raw = (await (await session.connection()).get_raw_connection()).driver_connection
    assert raw is not None
    await raw.executescript(f"PRAGMA incremental_vacuum({pages})")


# --- when it arrived


async def newest_mark(session: AsyncSession) -> ArrivalMarkRow | None:
    return (await session.scalars(select(ArrivalMarkRow).order_by(ArrivalMarkRow.time.desc()).limit(1))).one_or_none()


async def mark_before(session: AsyncSession, moment: datetime) -> ArrivalMarkRow | None:
    """The `seq` below which everything had arrived before `moment`; None: not known."""
    query = select(ArrivalMarkRow).where(ArrivalMarkRow.time <= moment).order_by(ArrivalMarkRow.time.desc()).limit(1)
    return (await session.scalars(query)).one_or_none()


async def add_mark(session: AsyncSession, now: datetime, events: int, forget_before: datetime) -> None:
    """Add a mark. Marks in the future go: they were made before the clock was set back."""
    await session.execute(delete(ArrivalMarkRow).where(or_(ArrivalMarkRow.time < forget_before, ArrivalMarkRow.time >= now)))
    points, lines = [await session.scalar(select(func.max(table.seq))) or 0 for table in (MetricRecordRow, LogLineRow)]
    session.add(ArrivalMarkRow(time=now, points=points, lines=lines, events=events))


async def oldest_owner(session: AsyncSession, kind: str, up_to: int, *, besides: Collection[str] = ()) -> str | None:
    """The job of the oldest point or line of jobs other than `besides`, where that is not newer than `up_to`."""
    table: Any = MetricRecordRow if kind == StorageKind.POINTS else LogLineRow
    found: str | None = await session.scalar(
        select(table.job_id).where(table.seq <= up_to, table.job_id.not_in(besides)).order_by(table.seq).limit(1)
    )
    return found
