"""Writing points and log lines: past the ORM, thousands of rows a call, on SQLite and PostgreSQL.

Everything here runs in one transaction with the stream marks, so a batch is stored once or not at all. Hazard: on PostgreSQL
sequence numbers are handed out before commit; `lock` keeps the stream cursors in commit order over several replicas.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, cast

from sqlalchemy import Insert, Table, bindparam, func, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.dialects import dialect_of, is_postgres
from paceline.db.models.metrics import LogLineRow, MetricNameRow, MetricRecordRow, StreamMarkRow

_MARKS_PER_QUERY = 1000  # both databases take about 32,000 parameters
_INGEST_LOCK = 0x7061_6365_0002
RECORD_COLUMNS = ("job_id", "generation", "rank", "step", "time", "values")
LOG_COLUMNS = ("job_id", "generation", "rank", "time", "level", "text")

_STREAM = (StreamMarkRow.job_id, StreamMarkRow.generation, StreamMarkRow.rank, StreamMarkRow.stream)
_MARKS = select(*_STREAM, StreamMarkRow.seq).where(tuple_(*_STREAM).in_(bindparam("streams", expanding=True)))

Stream = tuple[str, int, int, str]  # job_id, generation, rank, stream
Row = tuple[Any, ...]


async def lock(session: AsyncSession) -> None:
    if is_postgres(session):
        await session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _INGEST_LOCK})


async def marks(session: AsyncSession, streams: Sequence[Stream]) -> dict[Stream, int]:
    """The highest seq stored of each stream that has any."""
    found: dict[Stream, int] = {}
    for start in range(0, len(streams), _MARKS_PER_QUERY):
        rows = await session.execute(_MARKS, {"streams": streams[start : start + _MARKS_PER_QUERY]})
        found.update({(job, generation, rank, stream): seq for job, generation, rank, stream, seq in rows})
    return found


async def set_marks(session: AsyncSession, seqs: dict[Stream, int]) -> None:
    rows = [dict(zip(("job_id", "generation", "rank", "stream", "seq"), (*stream, seq), strict=True)) for stream, seq in seqs.items()]
    await session.execute(_marks_upsert(dialect_of(session)), rows)


@functools.cache
def _marks_upsert(dialect: Any) -> Insert:
    """The statement that moves marks. Made once: that takes longer than to execute it."""
    statement = dialect.insert(cast("Table", StreamMarkRow.__table__))
    upsert: Insert = statement.on_conflict_do_update(index_elements=_STREAM, set_={"seq": statement.excluded.seq})
    return upsert


async def newest_step(session: AsyncSession, job_id: str, generation: int, rank: int) -> int | None:
    """The highest step of which a rank's points are stored, as they came."""
    rows = MetricRecordRow.job_id == job_id, MetricRecordRow.generation == generation, MetricRecordRow.rank == rank
    return await session.scalar(select(func.max(MetricRecordRow.step)).where(*rows))


async def insert_records(session: AsyncSession, rows: Sequence[Row]) -> None:
    await _bulk_insert(session, MetricRecordRow.__tablename__, RECORD_COLUMNS, rows)


async def insert_log_lines(session: AsyncSession, rows: Sequence[Row]) -> None:
    await _bulk_insert(session, LogLineRow.__tablename__, LOG_COLUMNS, rows)


async def _bulk_insert(session: AsyncSession, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    connection = await session.connection()
    if is_postgres(session):
        raw = (await connection.get_raw_connection()).driver_connection
        assert raw is not None
        await raw.copy_records_to_table(table, records=rows, columns=columns)
        return
    names, places = ", ".join(f'"{name}"' for name in columns), ", ".join("?" * len(columns))
    await connection.exec_driver_sql(f"INSERT INTO {table} ({names}) VALUES ({places})", list(rows))


async def names_of(session: AsyncSession, job_ids: Iterable[str]) -> set[tuple[str, str]]:
    """Every (job, metric name) that these jobs have."""
    query = select(MetricNameRow.job_id, MetricNameRow.name).where(MetricNameRow.job_id.in_(list(job_ids)))
    return {(job_id, name) for job_id, name in await session.execute(query)}


async def add_names(session: AsyncSession, names: Iterable[tuple[str, str]]) -> None:
    """Remember that these (job, metric name) exist."""
    dialect = dialect_of(session)
    rows = [{"job_id": job_id, "name": name} for job_id, name in names]
    await session.execute(dialect.insert(MetricNameRow).on_conflict_do_nothing(), rows)
