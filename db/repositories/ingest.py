"""Writing points and log lines: past the ORM, thousands of rows a call, on SQLite and PostgreSQL.

Everything here runs in one transaction with the stream marks, so a batch is stored once or not at all. Hazard: on PostgreSQL
sequence numbers are handed out before commit; `lock` keeps the stream cursors in commit order over several replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import select, text, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from db.models.metrics import LogLineRow, MetricNameRow, MetricRecordRow, MetricRollupRow, StreamMarkRow
from monitoring.rollup import SUM_LIMIT

_MARKS_PER_QUERY = 1000  # both databases take about 32,000 parameters
_INGEST_LOCK = 0x7061_6365_0002
RECORD_COLUMNS = ("job_id", "generation", "rank", "step", "time", "values")
LOG_COLUMNS = ("job_id", "generation", "rank", "time", "level", "text")
ROLLUP_KEY = ("job_id", "name", "rank", "level", "bucket", "generation")
ROLLUP_COLUMNS = (*ROLLUP_KEY, "count", "nan_count", "minimum", "maximum", "sum", "last", "last_step", "last_time")
_ROLLUP_TYPES = ("text", "text", "int", "bigint", "bigint", "bigint", "bigint", "bigint", *["float8"] * 4, "bigint", "float8")

Stream = tuple[str, int, int, str]  # job_id, generation, rank, stream
Row = tuple[Any, ...]


def _is_postgres(session: AsyncSession) -> bool:
    return session.get_bind().dialect.name == "postgresql"


async def lock(session: AsyncSession) -> None:
    if _is_postgres(session):
        await session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _INGEST_LOCK})


async def marks(session: AsyncSession, streams: Sequence[Stream]) -> dict[Stream, int]:
    """The highest seq stored of each stream that has any."""
    columns = (StreamMarkRow.job_id, StreamMarkRow.generation, StreamMarkRow.rank, StreamMarkRow.stream)
    found: dict[Stream, int] = {}
    for start in range(0, len(streams), _MARKS_PER_QUERY):
        query = select(*columns, StreamMarkRow.seq).where(tuple_(*columns).in_(streams[start : start + _MARKS_PER_QUERY]))
        found.update({(job, generation, rank, stream): seq for job, generation, rank, stream, seq in await session.execute(query)})
    return found


async def set_marks(session: AsyncSession, seqs: dict[Stream, int]) -> None:
    dialect = postgresql if _is_postgres(session) else sqlite
    statement = dialect.insert(StreamMarkRow)
    key = [StreamMarkRow.job_id, StreamMarkRow.generation, StreamMarkRow.rank, StreamMarkRow.stream]
    upsert = statement.on_conflict_do_update(index_elements=key, set_={"seq": statement.excluded.seq})
    rows = [dict(zip(("job_id", "generation", "rank", "stream", "seq"), (*stream, seq), strict=True)) for stream, seq in seqs.items()]
    await session.execute(upsert, rows)


async def insert_records(session: AsyncSession, rows: Sequence[Row]) -> None:
    await _bulk_insert(session, MetricRecordRow.__tablename__, RECORD_COLUMNS, rows)


async def insert_log_lines(session: AsyncSession, rows: Sequence[Row]) -> None:
    await _bulk_insert(session, LogLineRow.__tablename__, LOG_COLUMNS, rows)


async def _bulk_insert(session: AsyncSession, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    connection = await session.connection()
    if _is_postgres(session):
        raw = (await connection.get_raw_connection()).driver_connection
        assert raw is not None
        await raw.copy_records_to_table(table, records=rows, columns=columns)
        return
    names, places = ", ".join(f'"{name}"' for name in columns), ", ".join("?" * len(columns))
    await connection.exec_driver_sql(f"INSERT INTO {table} ({names}) VALUES ({places})", list(rows))


async def merge_rollups(session: AsyncSession, rows: Sequence[Row]) -> None:
    """Add these buckets (ROLLUP_COLUMNS, each key once) to what is stored."""
    connection = await session.connection()
    if _is_postgres(session):
        arrays = tuple(list(column) for column in zip(*rows, strict=True))
        source = ", ".join(f"${place}::{kind}[]" for place, kind in enumerate(_ROLLUP_TYPES, start=1))
        await connection.exec_driver_sql(_merge_sql(f"SELECT * FROM unnest({source})", "LEAST", "GREATEST"), arrays)
        return
    places = ", ".join("?" * len(ROLLUP_COLUMNS))
    await connection.exec_driver_sql(_merge_sql(f"VALUES ({places})", "min", "max"), list(rows))


def _merge_sql(source: str, least: str, greatest: str) -> str:
    """Extremes of both sides where one may be null; the last of the later step."""
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
    columns = ", ".join(ROLLUP_COLUMNS)
    return f"INSERT INTO {table} ({columns}) {source} ON CONFLICT ({', '.join(ROLLUP_KEY)}) DO UPDATE SET {', '.join(changes)}"


async def names_of(session: AsyncSession, job_ids: Iterable[str]) -> set[tuple[str, str]]:
    """Every (job, metric name) that these jobs have."""
    query = select(MetricNameRow.job_id, MetricNameRow.name).where(MetricNameRow.job_id.in_(list(job_ids)))
    return {(job_id, name) for job_id, name in await session.execute(query)}


async def add_names(session: AsyncSession, names: Iterable[tuple[str, str]]) -> None:
    """Remember that these (job, metric name) exist."""
    dialect = postgresql if _is_postgres(session) else sqlite
    rows = [{"job_id": job_id, "name": name} for job_id, name in names]
    await session.execute(dialect.insert(MetricNameRow).on_conflict_do_nothing(), rows)
