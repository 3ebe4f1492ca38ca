"""What rank 0, or another one, told of each step: the records of a job's steps, in order, as much at a time as is asked for."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Collection, Sequence

from sqlalchemy import func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from db.models.metrics import MetricRecordRow, MetricRollupRow
from db.repositories.metric_columns import BUCKETS, RECORDS, RecordColumns, StoredBucket, buckets, records
from monitoring.rollup import LEVELS

#: Rows that are read at once: more would hold the event loop for too long.
CHUNK = 1_000
_LEADER = 0
_ROWS = MetricRecordRow


async def in_order(
    session: AsyncSession, job_id: str, first: int = 0, last: int | None = None, *, rank: int = _LEADER
) -> AsyncIterator[Sequence[RecordColumns]]:
    """Records of the steps `first` to `last`, by step, in chunks."""
    at = (first, 0)
    while True:
        query = RECORDS.where(_ROWS.job_id == job_id, _ROWS.rank == rank, tuple_(_ROWS.step, _ROWS.seq) > tuple_(*at))
        if last is not None:
            query = query.where(_ROWS.step <= last)
        chunk = await records(session, query.order_by(_ROWS.step, _ROWS.seq).limit(CHUNK))
        if chunk:
            yield chunk
        if len(chunk) < CHUNK:
            return
        at = (chunk[-1].step, chunk[-1].seq)


async def ranks(session: AsyncSession, job_id: str) -> list[int]:
    """Every rank that has told of a step; from the coarsest roll-ups."""
    table = MetricRollupRow
    query = select(table.rank).where(table.job_id == job_id, table.level == LEVELS[-1]).distinct().order_by(table.rank)
    return list(await session.scalars(query))


async def at_steps(session: AsyncSession, job_id: str, steps: Sequence[int]) -> list[RecordColumns]:
    query = RECORDS.where(_ROWS.job_id == job_id, _ROWS.rank == _LEADER, _ROWS.step.in_(steps))
    return await records(session, query.order_by(_ROWS.step, _ROWS.seq))


async def newest(session: AsyncSession, job_id: str, generation: int, limit: int) -> list[RecordColumns]:
    """The last `limit` records of one generation, the newest first."""
    mine = (_ROWS.job_id == job_id, _ROWS.rank == _LEADER, _ROWS.generation == generation)
    return await records(session, RECORDS.where(*mine).order_by(_ROWS.step.desc(), _ROWS.seq.desc()).limit(limit))


async def highest(session: AsyncSession, job_id: str, generation: int, name: str) -> dict[int, float]:
    """The largest value of one generation, by rank; from the coarsest roll-ups."""
    table = MetricRollupRow
    query = (
        select(table.rank, func.max(table.maximum))
        .where(table.job_id == job_id, table.name == name, table.generation == generation, table.level == LEVELS[-1])
        .group_by(table.rank)
        .order_by(table.rank)
    )
    return {rank: value for rank, value in await session.execute(query) if value is not None}


async def means(session: AsyncSession, job_id: str, generation: int, names: Collection[str]) -> dict[str, dict[int, float]]:
    """Over all steps of one generation, by name and rank; from the coarsest roll-ups. NaN does not count, and what was ever infinite
    has no mean."""
    table = MetricRollupRow
    numbers = func.nullif(func.sum(table.count - table.nan_count), 0)
    query = (
        select(table.name, table.rank, func.sum(table.sum) / numbers, func.min(table.minimum), func.max(table.maximum))
        .where(table.job_id == job_id, table.name.in_(list(names)), table.generation == generation, table.level == LEVELS[-1])
        .group_by(table.name, table.rank)
        .order_by(table.name, table.rank)
    )
    found: dict[str, dict[int, float]] = {}
    for name, rank, mean, least, most in await session.execute(query):
        if mean is not None and all(extreme is not None and math.isfinite(extreme) for extreme in (least, most)):
            found.setdefault(name, {})[rank] = mean
    return found


async def count(session: AsyncSession, job_id: str, name: str) -> int:
    """How many records have a value of this name; from the coarsest roll-ups."""
    table = MetricRollupRow
    query = select(func.sum(table.count)).where(
        table.job_id == job_id, table.name == name, table.rank == _LEADER, table.level == LEVELS[-1]
    )
    return int((await session.scalar(query)) or 0)


async def most_records(session: AsyncSession, job_id: str) -> int:
    """How many records have the value that most records of rank 0 have; from the coarsest roll-ups."""
    table = MetricRollupRow
    mine = (table.job_id == job_id, table.rank == _LEADER, table.level == LEVELS[-1])
    counted = select(func.sum(table.count).label("records")).where(*mine).group_by(table.name).subquery()
    return int((await session.scalar(select(func.max(counted.c.records)))) or 0)


async def newest_steps(session: AsyncSession, job_id: str, name: str) -> dict[int, int]:
    """The last step of each generation that has a value of this name."""
    table = MetricRollupRow
    query = (
        select(table.generation, func.max(table.last_step))
        .where(table.job_id == job_id, table.name == name, table.rank == _LEADER, table.level == LEVELS[-1])
        .group_by(table.generation)
    )
    return {row[0]: row[1] for row in await session.execute(query)}


async def newest_told(session: AsyncSession, job_id: str) -> dict[int, int]:
    """The last step of each generation that rank 0 told of anything."""
    table = MetricRollupRow
    query = (
        select(table.generation, func.max(table.last_step))
        .where(table.job_id == job_id, table.rank == _LEADER, table.level == LEVELS[-1])
        .group_by(table.generation)
    )
    return {row[0]: row[1] for row in await session.execute(query)}


async def rollups(session: AsyncSession, job_id: str, name: str, level: int) -> list[StoredBucket]:
    """Every bucket of one level, in order of generation and steps."""
    table = MetricRollupRow
    query = BUCKETS.where(table.job_id == job_id, table.name == name, table.rank == _LEADER, table.level == level)
    return await buckets(session, query.order_by(table.generation, table.bucket))
