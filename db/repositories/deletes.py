"""Deleting the oldest of what is stored of a job, a few thousand rows at a time: the metrics database.

Hazard: deletes and their tallies meet the upserts of the writer of the same rows. Each function here takes the same lock first
(`ingest.lock` for what is appended, `rollups.lock` for roll-ups), so that no two transactions wait for each other; so each is kept
small, and the caller repeats it. A point goes only when its roll-ups are made: what lies beyond the mark stays.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import CursorResult, Integer, Select, case, column, delete, func, literal, select, tuple_, update, values
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.cluster.history.storage import BUCKET_BYTES, LINE_BYTES, POINT_BYTES, StorageKind, curve_kind
from paceline.db.models.artifacts import ArtifactChunkRow
from paceline.db.models.metrics import LogLineRow, MetricNameRow, MetricRecordRow, MetricRollupRow, StreamMarkRow
from paceline.db.models.storage import StoredDataRow
from paceline.db.repositories import ingest, rollups


@dataclass(frozen=True)
class DeletedAmount:
    """The amount of deleted data. `to_step`: the highest deleted step; None for log lines."""

    rows: int = 0
    bytes: int = 0
    to_step: int | None = None


# --- points and log lines


async def drop_oldest(
    session: AsyncSession, job_id: str, kind: StorageKind, *, rows: int, bytes: int | None = None, up_to: int | None = None
) -> DeletedAmount:
    """Delete at most `rows` points or lines, the oldest first, and not more than make up `bytes`; `up_to`: the newest `seq` to go."""
    await ingest.lock(session)
    table: Any = MetricRecordRow if kind is StorageKind.POINTS else LogLineRow
    if kind is StorageKind.POINTS:
        made = await rollups.made_to(session)
        up_to = made if up_to is None else min(up_to, made)
    gone, last = await _oldest(session, _oldest_query(job_id, kind, up_to).limit(rows), bytes)
    if gone.rows:
        await session.execute(delete(table).where(table.job_id == job_id, table.seq <= last))
    nothing_left = not gone.rows and await session.scalar(select(table.seq).where(table.job_id == job_id).limit(1)) is None
    await _subtract(session, job_id, kind, gone, nothing_left=nothing_left)
    return gone


def _oldest_query(job_id: str, kind: StorageKind, up_to: int | None) -> Select[Any]:
    """The oldest rows as (seq, bytes, step), in the order of arrival."""
    if kind is StorageKind.POINTS:
        points = MetricRecordRow
        query = select(points.seq, POINT_BYTES + func.length(points.values), points.step).where(points.job_id == job_id)
        return (query if up_to is None else query.where(points.seq <= up_to)).order_by(points.seq)
    lines = LogLineRow
    query = select(lines.seq, LINE_BYTES + func.length(lines.text), literal(None)).where(lines.job_id == job_id)
    return (query if up_to is None else query.where(lines.seq <= up_to)).order_by(lines.seq)


async def _oldest(session: AsyncSession, query: Select[Any], bytes: int | None) -> tuple[DeletedAmount, int]:
    """(what would be deleted, its newest `seq`)."""
    rows, total, last, highest = 0, 0, 0, -1
    for seq, size, step in await session.execute(query):
        if bytes is not None and total >= bytes:
            break
        rows, total, last, highest = rows + 1, total + size, seq, max(highest, -1 if step is None else step)
    return DeletedAmount(rows, total, highest if highest >= 0 else None), last


# --- roll-ups


async def bucket_range(session: AsyncSession, job_id: str, level: int, ranks: Sequence[int]) -> tuple[int, int] | None:
    """The lowest and the highest bucket of one level; None: there is none. Looked up in the index for each name and rank: reading a
    level as a whole could be millions of rows."""
    table = MetricRollupRow
    each = values(column("rank", Integer), name="each_rank").data([(rank,) for rank in ranks]).cte("each_rank")
    mine = (table.job_id == MetricNameRow.job_id, table.name == MetricNameRow.name, table.rank == each.c.rank, table.level == level)
    lowest = select(table.bucket).where(*mine).order_by(table.bucket).limit(1).correlate(MetricNameRow, each).scalar_subquery()
    highest = select(table.bucket).where(*mine).order_by(table.bucket.desc()).limit(1).correlate(MetricNameRow, each).scalar_subquery()
    query = (
        select(func.min(lowest), func.max(highest))
        .select_from(MetricNameRow)
        .join(each, literal(True))
        .where(MetricNameRow.job_id == job_id)
    )
    first, last = (await session.execute(query)).one()
    return None if first is None else (first, last)


async def names(session: AsyncSession, job_id: str) -> list[str]:
    return list(await session.scalars(select(MetricNameRow.name).where(MetricNameRow.job_id == job_id).order_by(MetricNameRow.name)))


async def drop_buckets(
    session: AsyncSession, job_id: str, names: Sequence[str], level: int, ranks: Sequence[int], buckets: range
) -> DeletedAmount:
    """Delete these buckets of some metrics of one level."""
    await rollups.lock(session)
    table = MetricRollupRow
    mine = (table.job_id == job_id, table.name.in_(names), table.rank.in_(ranks), table.level == level)
    within = (table.bucket >= buckets.start, table.bucket < buckets.stop)
    rows = cast("CursorResult[Any]", await session.execute(delete(table).where(*mine, *within))).rowcount
    gone = DeletedAmount(rows, rows * BUCKET_BYTES, buckets.stop * level - 1)
    await _subtract(session, job_id, curve_kind(level), gone)
    return gone


async def clear_count(session: AsyncSession, job_id: str, level: int) -> None:
    """Set the count of a level to zero, whatever was counted: nothing of it is stored any more."""
    await rollups.lock(session)
    await _subtract(session, job_id, curve_kind(level), DeletedAmount(), nothing_left=True)


# --- what goes with the job's data


async def forget_marks(session: AsyncSession, job_id: str, before_generation: int, keep: Collection[tuple[int, int]]) -> None:
    """Delete the marks of ranks that can send nothing more. `keep`: the others, by generation and rank."""
    await ingest.lock(session)
    place = tuple_(StreamMarkRow.generation, StreamMarkRow.rank)
    mine = (StreamMarkRow.job_id == job_id, StreamMarkRow.generation < before_generation, place.not_in(keep))
    await session.execute(delete(StreamMarkRow).where(*mine))


async def stored_artifacts(session: AsyncSession) -> list[str]:
    """The artifacts of which at least one chunk is stored."""
    return list(await session.scalars(select(ArtifactChunkRow.artifact_id).where(ArtifactChunkRow.number == 0)))


async def _subtract(session: AsyncSession, job_id: str, kind: str, gone: DeletedAmount, *, nothing_left: bool = False) -> None:
    """Subtract deleted data from the count. `nothing_left`: there is no such row any more, whatever was counted."""
    table = StoredDataRow
    changes: dict[str, Any] = {"gone_rows": table.gone_rows + gone.rows}
    for name, less in (("rows", gone.rows), ("bytes", gone.bytes)):
        counted = getattr(table, name)
        changes[name] = 0 if nothing_left else case((counted > less, counted - less), else_=0)
    if gone.to_step is not None:
        changes["gone_to_step"] = case((func.coalesce(table.gone_to_step, -1) < gone.to_step, gone.to_step), else_=table.gone_to_step)
    await session.execute(update(table).where(table.job_id == job_id, table.kind == kind).values(**changes))
