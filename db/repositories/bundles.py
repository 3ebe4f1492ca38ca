"""Queries about bundles and their chunks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Text, cast, delete, func, literal, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from paceline.db.dialects import dialect_of
from paceline.db.models.bundles import BundleChunkRow, BundleRow
from paceline.db.models.experiments import ExperimentRow
from paceline.db.models.jobs import JobRow, RankRow
from paceline.db.repositories.names import named_or_begun


async def get(session: AsyncSession, digest: str) -> BundleRow | None:
    return await session.get(BundleRow, digest)


async def get_locked(session: AsyncSession, digest: str) -> BundleRow | None:
    return await session.get(BundleRow, digest, with_for_update=True, populate_existing=True)


async def add(session: AsyncSession, row: BundleRow) -> None:
    """Store a new bundle. One of the same digest, which somebody else has just offered, is left as it is."""
    dialect = dialect_of(session)
    values = {column.key: getattr(row, column.key) for column in BundleRow.__mapper__.columns}
    await session.execute(dialect.insert(BundleRow).values(values).on_conflict_do_nothing())


async def unused(session: AsyncSession, offered_before: datetime, stuck_before: datetime, limit: int) -> Sequence[str]:
    """The digests of bundles that nothing names (see `_named`), and that nobody has offered lately. Those that are still arriving have less time."""
    stuck = BundleRow.stored_at.is_(None) & (BundleRow.offered_at < stuck_before)
    query = select(BundleRow.digest).where(~_named(BundleRow.digest), or_(BundleRow.offered_at < offered_before, stuck))
    return (await session.scalars(query.order_by(BundleRow.offered_at).limit(limit))).all()


async def is_named(session: AsyncSession, digest: str) -> bool:
    return bool(await session.scalar(select(_named(literal(digest)))))


async def ran_on(session: AsyncSession, node_id: str, digest: str) -> bool:
    """Whether a node has, or has had, ranks of a job with this bundle."""
    of_job = (RankRow.job_id == JobRow.id) & (RankRow.node_id == node_id)
    return bool(await session.scalar(select(select(JobRow.id).join(RankRow, of_job).where(JobRow.bundle == digest).exists())))


def _named(digest: ColumnElement[str] | InstrumentedAttribute[str]) -> ColumnElement[bool]:
    """Whether a job names the bundle, or an experiment that can still start trials with it, anywhere in its spec."""
    by_job = select(JobRow.id).where(JobRow.bundle == digest).exists()
    goes_on = ExperimentRow.state.not_in(("completed", "cancelled"))
    return by_job | select(ExperimentRow.id).where(goes_on, cast(ExperimentRow.spec, Text).contains(digest)).exists()


async def newest_jobs(session: AsyncSession, text: str | None, before: str | None, limit: int) -> Sequence[tuple[JobRow, BundleRow]]:
    """Return the newest job of each stored bundle, the newest first: of the jobs whose name holds `text` or whose id begins with it; only jobs
    whose id is less than `before`. Archived jobs are left out."""
    newest = func.max(JobRow.id)
    query = select(newest).where(JobRow.bundle.is_not(None), JobRow.archived_at.is_(None)).group_by(JobRow.bundle)
    if text:
        query = query.where(named_or_begun(text, JobRow.name, JobRow.id))
    if before is not None:
        query = query.having(newest < before)
    stored = select(JobRow, BundleRow).join(BundleRow, BundleRow.digest == JobRow.bundle).where(BundleRow.stored_at.is_not(None))
    rows = await session.execute(stored.where(JobRow.id.in_(query)).order_by(JobRow.id.desc()).limit(limit))
    return [(job, bundle) for job, bundle in rows]


# --- contents


async def chunks(points: AsyncSession, digest: str) -> int:
    """The number of stored chunks; they arrive in order."""
    return int((await points.scalar(select(func.count()).select_from(BundleChunkRow).where(BundleChunkRow.digest == digest))) or 0)


async def add_chunk(points: AsyncSession, digest: str, number: int, data: bytes) -> None:
    """Store a chunk. One that is stored already is left as it is."""
    dialect = dialect_of(points)
    row = {"digest": digest, "number": number, "data": data}
    await points.execute(dialect.insert(BundleChunkRow).values(row).on_conflict_do_nothing())


async def chunk(points: AsyncSession, digest: str, number: int) -> bytes | None:
    row = await points.get(BundleChunkRow, (digest, number))
    return None if row is None else row.data


async def drop_last_chunks(points: AsyncSession, digest: str, most: int) -> int:
    """Delete the last chunks of a bundle. Returns how many."""
    mine = BundleChunkRow.digest == digest
    numbers = list(await points.scalars(select(BundleChunkRow.number).where(mine).order_by(BundleChunkRow.number.desc()).limit(most)))
    await points.execute(delete(BundleChunkRow).where(mine, BundleChunkRow.number.in_(numbers)))
    return len(numbers)
