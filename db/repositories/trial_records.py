"""The reports of the ranks of many jobs at once, in a few queries: for analyses of whole experiments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.models.metrics import MetricNameRow, MetricRecordRow, MetricRollupRow
from paceline.db.models.storage import StoredDataRow
from paceline.db.repositories import rollups
from paceline.db.repositories.metric_columns import BUCKETS, RECORDS, RecordColumns, StoredBucket
from paceline.db.repositories.rollups import RollupTail
from paceline.monitoring.rollup import LEVELS, Bucket

#: Jobs of one query: both databases take lists of that length without a second thought.
JOBS_AT_ONCE = 500
_LEADER = 0


class LeaderRecords(NamedTuple):
    """Records of rank 0 of many jobs, by job and step, as columns that are equally long: a tuple for each of a hundred thousand would cost more than
    reading them."""

    job_ids: Sequence[str] = ()
    generations: Sequence[int] = ()
    steps: Sequence[int] = ()
    times: Sequence[float] = ()
    values: Sequence[str] = ()  # JSON text


async def names(session: AsyncSession, job_ids: Collection[str]) -> set[str]:
    """The names of all metrics that any of these jobs has."""
    found: set[str] = set()
    for some in _batches(job_ids):
        found |= set(await session.scalars(select(MetricNameRow.name).where(MetricNameRow.job_id.in_(some)).distinct()))
    return found


async def of_leaders(session: AsyncSession, job_ids: Collection[str], steps: Sequence[int] | None) -> LeaderRecords:
    """The records of rank 0 of each job, by job and step; `steps` None: of all steps."""
    table = MetricRecordRow
    columns = (table.job_id, table.generation, table.step, table.time, table.values)
    rows: list[Any] = []
    connection = await session.connection()  # an ORM's result takes as long again as reading
    for some in _batches(job_ids):
        query = select(*columns).where(table.job_id.in_(some), table.rank == _LEADER)
        query = query if steps is None else query.where(table.step.in_(steps))
        rows += (await connection.execute(query.order_by(table.job_id, table.step, table.seq))).all()
    return LeaderRecords(*zip(*rows, strict=True))


async def totals(session: AsyncSession, job_ids: Collection[str], names: Collection[str], ranks: int) -> dict[str, list[StoredBucket]]:
    """All points of the ranks below `ranks`, as few buckets as there are, by job; with those that are in no roll-up yet."""
    return await of_level(session, job_ids, names, LEVELS[-1], ranks)


async def of_level(
    session: AsyncSession, job_ids: Collection[str], names: Collection[str], level: int, ranks: int = 1
) -> dict[str, list[StoredBucket]]:
    """The buckets of one level of the ranks below `ranks`, by job, each job's by name, rank, generation and number."""
    table = MetricRollupRow
    found: defaultdict[str, list[StoredBucket]] = defaultdict(list)
    for some in _batches(job_ids):
        mine = (table.job_id.in_(some), table.name.in_(names), table.rank.in_(range(ranks)), table.level == level)
        for *columns, job_id in await session.execute(BUCKETS.add_columns(table.job_id).where(*mine)):
            name, rank, generation, number, *rest = columns
            found[job_id].append(StoredBucket(name, rank, generation, number, Bucket(*rest)))
        for job_id, tail in (await _tails(session, some, ranks)).items():
            found[job_id] = tail.add_to(found[job_id], level, names=names)
    return {job_id: sorted(stored, key=lambda each: each[:4]) for job_id, stored in found.items()}


async def _tails(session: AsyncSession, job_ids: Collection[str], ranks: int) -> dict[str, RollupTail]:
    """The points that are in no roll-up yet, by job."""
    table = MetricRecordRow
    made = await rollups.marks(session, job_ids)
    query = RECORDS.add_columns(table.job_id).where(table.job_id.in_(job_ids), table.seq > made.every, table.rank < ranks)
    records: defaultdict[str, list[RecordColumns]] = defaultdict(list)
    for *columns, job_id in await session.execute(query.order_by(table.seq)):
        record = RecordColumns(*columns)
        if record.seq > made.of((job_id, record.rank)):
            records[job_id].append(record)
    return {job_id: RollupTail(mine) for job_id, mine in records.items()}


async def gone_to_steps(session: AsyncSession, job_ids: Collection[str]) -> dict[str, dict[str, int]]:
    """By job and kind, the highest step of which something was deleted; jobs of which everything is kept are absent."""
    table = StoredDataRow
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for some in _batches(job_ids):
        query = select(table.job_id, table.kind, table.gone_to_step).where(table.job_id.in_(some), table.gone_to_step.is_not(None))
        for job_id, kind, step in await session.execute(query):
            found[job_id][kind] = int(step or 0)
    return dict(found)


def _batches(job_ids: Collection[str]) -> list[list[str]]:
    ordered = sorted(job_ids)
    return [ordered[at : at + JOBS_AT_ONCE] for at in range(0, len(ordered), JOBS_AT_ONCE)]
