"""Reading points and roll-ups of any rank, as they are drawn and streamed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.models.metrics import MetricNameRow, MetricRecordRow, MetricRollupRow
from paceline.db.repositories.metric_columns import BUCKETS, RECORDS, RecordColumns, StoredBucket, buckets, records
from paceline.db.repositories.rollups import RollupTail


class StepRange(NamedTuple):
    """Steps first..last, both included."""

    first: int
    last: int


async def newest_seq(session: AsyncSession, job_id: str) -> int:
    query = select(MetricRecordRow.seq).where(MetricRecordRow.job_id == job_id).order_by(MetricRecordRow.seq.desc()).limit(1)
    return (await session.scalar(query)) or 0


async def names(session: AsyncSession, job_id: str) -> list[str]:
    query = select(MetricNameRow.name).where(MetricNameRow.job_id == job_id).order_by(MetricNameRow.name)
    return list(await session.scalars(query))


async def step_range(session: AsyncSession, job_id: str, rank: int) -> StepRange | None:
    """The first and last step of one rank. Two queries in one, since only a lone min or max is read off the index."""
    mine = (MetricRecordRow.job_id == job_id, MetricRecordRow.rank == rank)
    first = select(func.min(MetricRecordRow.step)).where(*mine).scalar_subquery()
    last = select(func.max(MetricRecordRow.step)).where(*mine).scalar_subquery()
    row = (await session.execute(select(first, last))).one()
    return None if row[0] is None else StepRange(row[0], row[1])


async def rolled_range(session: AsyncSession, job_id: str, rank: int, names: Sequence[str], level: int) -> StepRange | None:
    """About the first, and the last step of one rank, from stored roll-ups of a coarse level: for where points have been deleted."""
    table = MetricRollupRow
    query = select(func.min(table.bucket), func.max(table.last_step)).where(
        table.job_id == job_id, table.name.in_(names), table.rank == rank, table.level == level
    )
    lowest, last = (await session.execute(query)).one()
    return None if lowest is None else StepRange(lowest * level, last)


async def lowest_rank(session: AsyncSession, job_id: str, name: str) -> int | None:
    """The lowest rank with a point of any metric, or with roll-ups of this one; None: there is none."""
    of_points = select(func.min(MetricRecordRow.rank)).where(MetricRecordRow.job_id == job_id).scalar_subquery()
    of_rollups = (
        select(func.min(MetricRollupRow.rank)).where(MetricRollupRow.job_id == job_id, MetricRollupRow.name == name).scalar_subquery()
    )
    found = (await session.execute(select(of_points, of_rollups))).one()
    return min((rank for rank in found if rank is not None), default=None)


async def raw(session: AsyncSession, job_id: str, rank: int, steps: StepRange, limit: int) -> list[RecordColumns]:
    """Records of one rank in the order of their steps; one more than `limit` at most, which tells that they do not fit."""
    mine = (MetricRecordRow.job_id == job_id, MetricRecordRow.rank == rank, MetricRecordRow.step.between(*steps))
    return await records(session, RECORDS.where(*mine).order_by(MetricRecordRow.step, MetricRecordRow.seq).limit(limit + 1))


async def raw_of_ranks(session: AsyncSession, job_id: str, ranks: Collection[int], steps: StepRange) -> list[RecordColumns]:
    """Records of several ranks, all of them: for ranges that are known to be small."""
    mine = (MetricRecordRow.job_id == job_id, MetricRecordRow.rank.in_(ranks), MetricRecordRow.step.between(*steps))
    return await records(session, RECORDS.where(*mine))


async def rollups(
    session: AsyncSession, job_id: str, names: Sequence[str], rank: int, level: int, steps: StepRange, tail: RollupTail
) -> list[StoredBucket]:
    """Buckets that hold any of these steps, in order; `tail`: the rank's points that are in no stored bucket yet."""
    table, numbers = MetricRollupRow, range(steps.first // level, steps.last // level + 1)
    query = BUCKETS.where(
        table.job_id == job_id,
        table.name.in_(names),
        table.rank == rank,
        table.level == level,
        table.bucket.between(numbers[0], numbers[-1]),
    )
    return tail.add_to(await buckets(session, query), level, names=names, numbers=numbers)


async def records_after(session: AsyncSession, job_id: str, seq: int, limit: int) -> list[RecordColumns]:
    newer = (MetricRecordRow.job_id == job_id, MetricRecordRow.seq > seq)
    return await records(session, RECORDS.where(*newer).order_by(MetricRecordRow.seq).limit(limit))
