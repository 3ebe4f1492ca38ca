"""The records of a job's steps by rank 0, or another rank, in order, as many at a time as are asked for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import select, tuple_, union
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.models.metrics import MetricNameRow, MetricRecordRow, MetricRollupRow
from paceline.db.repositories import rollups
from paceline.db.repositories.metric_columns import BUCKETS, RECORDS, RecordColumns, StoredBucket, buckets, records
from paceline.monitoring.rollup import LEVELS, Bucket

#: Rows that are read at once: more would hold the event loop for too long.
CHUNK = 1_000
_LEADER = 0
_ROWS = MetricRecordRow


@dataclass(frozen=True)
class GenerationSteps:
    """The last step that rank 0 recorded in one generation, and how many it did."""

    last: int  # step
    records: int  # of the value that has most of them

    def has_each_from(self, first: int) -> bool:
        """Whether each step from `first` to the last one was recorded. One record alone does not tell how far the next is."""
        return self.records == self.last - first + 1 and self.records > 1


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
    """Every rank that has recorded a value; from the coarsest roll-ups, and the points that are not in them yet."""
    table = MetricRollupRow
    names = select(MetricNameRow.name).where(MetricNameRow.job_id == job_id)
    stored = select(table.rank).where(table.job_id == job_id, table.name.in_(names), table.level == LEVELS[-1])
    newer = select(_ROWS.rank).where(_ROWS.job_id == job_id, _ROWS.seq > await rollups.made_to(session), _ROWS.values != "{}")
    return sorted(await session.scalars(union(stored, newer)))


async def at_steps(session: AsyncSession, job_id: str, steps: Sequence[int]) -> list[RecordColumns]:
    query = RECORDS.where(_ROWS.job_id == job_id, _ROWS.rank == _LEADER, _ROWS.step.in_(steps))
    return await records(session, query.order_by(_ROWS.step, _ROWS.seq))


async def newest(session: AsyncSession, job_id: str, generation: int, limit: int, *, rank: int = _LEADER) -> list[RecordColumns]:
    """The last `limit` records of one generation, the newest first."""
    mine = (_ROWS.job_id == job_id, _ROWS.rank == rank, _ROWS.generation == generation)
    return await records(session, RECORDS.where(*mine).order_by(_ROWS.step.desc(), _ROWS.seq.desc()).limit(limit))


# --- from the coarsest roll-ups


async def highest(session: AsyncSession, job_id: str, generation: int, name: str) -> dict[int, float]:
    """The largest value of one generation, by rank."""
    found: dict[int, float] = {}
    for each in await rollups.coarsest(session, job_id, names=(name,), generation=generation):
        if each.bucket.maximum is not None:
            found[each.rank] = max(each.bucket.maximum, found.get(each.rank, each.bucket.maximum))
    return found


async def means(session: AsyncSession, job_id: str, generation: int, names: Collection[str]) -> dict[str, dict[int, float]]:
    """The mean over all steps of one generation, by name and rank. NaN does not count, and values that were ever infinite have no mean."""
    whole: dict[tuple[str, int], Bucket] = {}
    for each in await rollups.coarsest(session, job_id, names=names, generation=generation):
        whole.setdefault((each.name, each.rank), Bucket()).merge(each.bucket)
    found: dict[str, dict[int, float]] = {}
    for (name, rank), bucket in whole.items():
        extremes = (bucket.minimum, bucket.maximum)
        if all(extreme is not None and math.isfinite(extreme) for extreme in extremes):
            found.setdefault(name, {})[rank] = bucket.sum / (bucket.count - bucket.nan_count)
    return found


async def count(session: AsyncSession, job_id: str, name: str) -> int:
    """How many records have a value of this name."""
    return sum(each.bucket.count for each in await rollups.coarsest(session, job_id, names=(name,), rank=_LEADER))


async def most_records(session: AsyncSession, job_id: str) -> int:
    """How many records have the value that most records of rank 0 have."""
    counted: Counter[str] = Counter()
    for each in await rollups.coarsest(session, job_id, rank=_LEADER):
        counted[each.name] += each.bucket.count
    return max(counted.values(), default=0)


async def newest_steps(session: AsyncSession, job_id: str, name: str) -> dict[int, int]:
    """The last step of each generation that has a value of this name."""
    return _last_steps(await rollups.coarsest(session, job_id, names=(name,), rank=_LEADER))


async def recorded(session: AsyncSession, job_id: str) -> dict[int, GenerationSteps]:
    """Return what rank 0 recorded of any value, by generation."""
    found = await rollups.coarsest(session, job_id, rank=_LEADER)
    counts: dict[int, Counter[str]] = {}
    for each in found:
        counts.setdefault(each.generation, Counter())[each.name] += each.bucket.count
    return {generation: GenerationSteps(last, max(counts[generation].values())) for generation, last in _last_steps(found).items()}


def _last_steps(found: Sequence[StoredBucket]) -> dict[int, int]:
    steps: dict[int, int] = {}
    for each in found:
        steps[each.generation] = max(each.bucket.last_step, steps.get(each.generation, -1))
    return steps


async def of_level(session: AsyncSession, job_id: str, name: str, level: int) -> list[StoredBucket]:
    """Every bucket of one level, in order of generation and steps."""
    table = MetricRollupRow
    query = BUCKETS.where(table.job_id == job_id, table.name == name, table.rank == _LEADER, table.level == level)
    tail = await rollups.tail(session, job_id, [_LEADER])
    return tail.add_to(await buckets(session, query), level, names=(name,))
