"""Roll-ups: made behind the points, by a refresh (`api/services/storage/rollups.py`), and read with the points that it has not got to.

Marks say up to where they are made. A reader takes stored buckets and the *tail*, the points beyond the marks, in one read-only
session, which sees one moment: so every answer is that of all points, whenever a refresh runs and wherever.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from sqlalchemy import delete, func, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.dialects import dialect_of, is_postgres
from paceline.db.models.metrics import MetricNameRow, MetricRecordRow, MetricRollupRow, RollupMarkRow
from paceline.db.repositories.ingest import Row
from paceline.db.repositories.metric_columns import BUCKETS, RECORDS, RecordColumns, StoredBucket, buckets, records
from paceline.monitoring.rollup import LEVELS, SUM_LIMIT, Bucket

_ROLLUP_LOCK = 0x7061_6365_0003
KEY = ("job_id", "name", "rank", "level", "bucket", "generation")
_COLUMNS = (*KEY, "count", "nan_count", "minimum", "maximum", "sum", "last", "last_step", "last_time")
_TYPES = ("text", "text", "int", "bigint", "bigint", "bigint", "bigint", "bigint", *["float8"] * 4, "bigint", "float8")

#: Points that are read at once, so that a tail that has grown long keeps the event loop for no longer than another.
TAIL_PAGE = 1_000
#: More of them are decoded in a thread.
MAX_RECORDS_IN_LOOP = 200

Rank = tuple[str, int]  # job_id, rank
EVERY_RANK: Rank = ("", -1)
_values = msgspec.json.Decoder(dict[str, float | str])


async def lock(session: AsyncSession) -> None:
    """Take the lock that every change of roll-ups, or of their counts, takes first. Storing points does not wait for it on PostgreSQL."""
    if is_postgres(session):
        await session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ROLLUP_LOCK})


# --- how far they are


@dataclass(frozen=True)
class Marks:
    """How far roll-ups are made. `every`: those of all points up to this `seq`; `ranks`: those of some ranks are further."""

    every: int
    ranks: Mapping[Rank, int]

    def of(self, rank: Rank) -> int:
        return max(self.every, self.ranks.get(rank, 0))


async def marks(session: AsyncSession, job_ids: Collection[str] | None = None) -> Marks:
    """The marks of the ranks of these jobs; None: of all jobs."""
    query = select(RollupMarkRow.job_id, RollupMarkRow.rank, RollupMarkRow.seq)
    if job_ids is not None:
        query = query.where(RollupMarkRow.job_id.in_([EVERY_RANK[0], *job_ids]))
    found = {(job_id, rank): seq for job_id, rank, seq in await session.execute(query)}
    return Marks(found.pop(EVERY_RANK, 0), found)


#: Made once: a loop asks these two every other second.
_MADE_TO = select(RollupMarkRow.seq).where(RollupMarkRow.job_id == EVERY_RANK[0], RollupMarkRow.rank == EVERY_RANK[1])
_NEWEST_SEQ = select(func.max(MetricRecordRow.seq))


async def made_to(session: AsyncSession) -> int:
    """The `seq` up to which the roll-ups of all points are made."""
    return await session.scalar(_MADE_TO) or 0


async def move_marks(session: AsyncSession, seqs: Mapping[Rank, int]) -> None:
    """Move marks. That of EVERY_RANK takes the place of the ranks' own marks below it."""
    dialect = dialect_of(session)
    statement = dialect.insert(RollupMarkRow)
    upsert = statement.on_conflict_do_update(
        index_elements=[RollupMarkRow.job_id, RollupMarkRow.rank], set_={"seq": statement.excluded.seq}
    )
    await session.execute(upsert, [{"job_id": job_id, "rank": rank, "seq": seq} for (job_id, rank), seq in seqs.items()])
    if EVERY_RANK in seqs:
        await session.execute(delete(RollupMarkRow).where(RollupMarkRow.job_id != EVERY_RANK[0], RollupMarkRow.seq <= seqs[EVERY_RANK]))


async def newest_seq(session: AsyncSession) -> int:
    """The newest `seq` of all points."""
    return await session.scalar(_NEWEST_SEQ) or 0


async def tail_size(session: AsyncSession, after: int) -> int:
    """Characters of the values of all points beyond `after`."""
    return int(await session.scalar(select(func.sum(func.length(MetricRecordRow.values))).where(MetricRecordRow.seq > after)) or 0)


class TailRecord(NamedTuple):
    job_id: str
    record: RecordColumns


async def tail_of_all(session: AsyncSession, after: int, limit: int) -> list[TailRecord]:
    """The first `limit` points beyond `after`, of every job, in the order of arrival."""
    query = RECORDS.add_columns(MetricRecordRow.job_id).where(MetricRecordRow.seq > after).order_by(MetricRecordRow.seq).limit(limit)
    return [TailRecord(job_id, RecordColumns(*columns)) for *columns, job_id in await session.execute(query)]


# --- reading


@dataclass(frozen=True)
class RollupTail:
    """Points of one job that are in no roll-up yet, in the order of arrival."""

    records: Sequence[RecordColumns] = ()

    def by_rank(self) -> dict[int, RollupTail]:
        """The points by rank."""
        found: defaultdict[int, list[RecordColumns]] = defaultdict(list)
        for record in self.records:
            found[record.rank].append(record)
        return {rank: RollupTail(mine) for rank, mine in found.items()}

    def add_to(
        self, stored: Sequence[StoredBucket], level: int, *, names: Collection[str] | None = None, numbers: range | None = None
    ) -> list[StoredBucket]:
        """Merge `stored` with the buckets of these points, by name, rank, generation and number. None: every name, or number."""
        found = {(each.name, each.rank, each.generation, each.number): each.bucket for each in stored}
        for record in self.records:
            number = record.step // level
            if numbers is not None and number not in numbers:
                continue
            for name, value in read_values(record).items():
                if names is None or name in names:
                    key = (name, record.rank, record.generation, number)
                    found.setdefault(key, Bucket()).add(record.step, record.time, value)
        return [StoredBucket(*key, found[key]) for key in sorted(found)]


def read_values(record: RecordColumns) -> dict[str, float]:
    return {name: float(value) for name, value in _values.decode(record.values).items()}


async def tail(session: AsyncSession, job_id: str, ranks: Collection[int] | None = None, *, generation: int | None = None) -> RollupTail:
    """The points of these ranks without roll-ups; None: of all ranks."""
    made = await marks(session, [job_id])
    query = RECORDS.where(MetricRecordRow.job_id == job_id)
    if ranks is not None:
        query = query.where(MetricRecordRow.rank.in_(list(ranks)))
    if generation is not None:
        query = query.where(MetricRecordRow.generation == generation)
    found: list[RecordColumns] = []
    read_to, is_full = made.every, True
    while is_full:
        page = await records(session, query.where(MetricRecordRow.seq > read_to).order_by(MetricRecordRow.seq).limit(TAIL_PAGE))
        found += (record for record in page if record.seq > made.of((job_id, record.rank)))
        is_full = len(page) == TAIL_PAGE
        read_to = page[-1].seq if page else read_to
    return RollupTail(found)


async def coarsest(
    session: AsyncSession,
    job_id: str,
    *,
    names: Collection[str] | None = None,
    rank: int | None = None,
    generation: int | None = None,
) -> list[StoredBucket]:
    """The buckets of all points of a job, as few as there are, including the tail. None: of every name, rank, generation."""
    level, table = LEVELS[-1], MetricRollupRow
    query = BUCKETS.where(table.job_id == job_id, table.level == level)
    reported = select(MetricNameRow.name).where(MetricNameRow.job_id == job_id)  # named, so that the key is searched, not scanned
    query = query.where(table.name.in_(reported if names is None else list(names)))
    query = query if rank is None else query.where(table.rank == rank)
    query = query if generation is None else query.where(table.generation == generation)
    newer = await tail(session, job_id, None if rank is None else [rank], generation=generation)
    stored = await buckets(session, query)
    if len(newer.records) <= MAX_RECORDS_IN_LOOP:
        return newer.add_to(stored, level, names=names)
    return await asyncio.to_thread(newer.add_to, stored, level, names=names)


async def newest_steps(
    session: AsyncSession, job_id: str, names: Collection[str], ranks: Collection[int]
) -> dict[tuple[str, int, int], int]:
    """The highest step that is in the stored roll-ups, by (name, rank, generation)."""
    table = MetricRollupRow
    mine = (table.job_id == job_id, table.name.in_(names), table.rank.in_(ranks), table.level == LEVELS[-1])
    query = select(table.name, table.rank, table.generation, func.max(table.last_step)).where(*mine)
    found = await session.execute(query.group_by(table.name, table.rank, table.generation))
    return {(name, rank, generation): step for name, rank, generation, step in found}


# --- writing


async def merge(session: AsyncSession, rows: Sequence[Row]) -> None:
    """Add these buckets (_COLUMNS, each key once) to what is stored."""
    connection = await session.connection()
    if is_postgres(session):
        arrays = tuple(list(column) for column in zip(*rows, strict=True))
        source = ", ".join(f"${place}::{kind}[]" for place, kind in enumerate(_TYPES, start=1))
        await connection.exec_driver_sql(_merge_sql(f"SELECT * FROM unnest({source})", "LEAST", "GREATEST"), arrays)
        return
    places = ", ".join("?" * len(_COLUMNS))
    await connection.exec_driver_sql(_merge_sql(f"VALUES ({places})", "min", "max"), list(rows))


def _merge_sql(source: str, least: str, greatest: str) -> str:
    """The assignments that merge two buckets: extremes of both sides where one may be null; the last value of the later step."""
    table = MetricRollupRow.__tablename__
    newer = f"excluded.last_step >= {table}.last_step"

    def extreme(function: str, name: str) -> str:
        return f"{name} = {function}(coalesce(excluded.{name}, {table}.{name}), coalesce({table}.{name}, excluded.{name}))"

    changes = [
        *(f"{name} = {table}.{name} + excluded.{name}" for name in ("count", "nan_count")),
        f"sum = {greatest}(-{SUM_LIMIT:g}, {least}({SUM_LIMIT:g}, {table}.sum + excluded.sum))",
        extreme(least, "minimum"),
        extreme(greatest, "maximum"),
        *(f"{name} = CASE WHEN {newer} THEN excluded.{name} ELSE {table}.{name} END" for name in ("last", "last_step", "last_time")),
    ]
    columns = ", ".join(_COLUMNS)
    return f"INSERT INTO {table} ({columns}) {source} ON CONFLICT ({', '.join(KEY)}) DO UPDATE SET {', '.join(changes)}"
