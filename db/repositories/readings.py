"""Writing, reading and deleting readings of nodes. Hazard: `seq` is a stream's cursor; `lock` keeps it in commit order on PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import delete, func, insert, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.cluster.history.node_readings import RAW_READINGS, READING_ROW_BYTES, reading_kind
from paceline.db.dialects import dialect_of, is_postgres
from paceline.db.models.metrics import StreamMarkRow
from paceline.db.models.readings import NodeReadingRollupRow, NodeReadingRow
from paceline.db.models.storage import StoredDataRow
from paceline.db.repositories import ingest
from paceline.db.repositories.ingest import Stream

_READINGS_LOCK = 0x7061_6365_0004
#: Marks that are kept of a node's spools before its newest: a spool lasts for twenty minutes or more.
SPOOL_MARKS_BEFORE = 8


def spool_stream(node_id: str, spool: int) -> Stream:
    """The stream of one spool of a node: its mark is the highest `seq` that is stored of it."""
    return (node_id, spool, 0, "readings")


def rollup_stream(node_id: str) -> Stream:
    """The stream whose mark is the `node_readings.seq` up to which the node's readings are in the roll-ups."""
    return (node_id, 0, 0, "reading_rollups")


class StoredReadings(NamedTuple):
    seq: int
    node_id: str
    first_time: float
    last_time: float
    data: bytes


class StoredRollup(NamedTuple):
    """A row of a roll-up."""

    seconds: int
    start: int
    data: bytes


_ROWS = select(*(getattr(NodeReadingRow, name) for name in StoredReadings._fields))
_ROLLUPS = select(NodeReadingRollupRow.seconds, NodeReadingRollupRow.start, NodeReadingRollupRow.data)


async def lock(session: AsyncSession) -> None:
    """Take the lock that everything takes first that stores readings, rolls them up or deletes them."""
    if is_postgres(session):
        await session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _READINGS_LOCK})


# --- writing


async def add(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows of `node_readings`, without their `seq`."""
    if rows:
        await session.execute(insert(NodeReadingRow), list(rows))


async def forget_spools(session: AsyncSession, newest: Mapping[str, int]) -> None:
    """Delete the marks of each node's spools but those of this one and the last few before it: a node sends one to its end before it begins the
    next, and an upload that another coordinator held up may still come."""
    for node_id, spool in newest.items():
        mine = (StreamMarkRow.job_id == node_id, StreamMarkRow.stream == "readings", StreamMarkRow.generation < spool)
        before = select(StreamMarkRow.generation).where(*mine).order_by(StreamMarkRow.generation.desc())
        last = await session.scalar(before.offset(SPOOL_MARKS_BEFORE).limit(1))
        if last is not None:
            await session.execute(delete(StreamMarkRow).where(*mine, StreamMarkRow.generation <= last))


async def put_rollups(session: AsyncSession, node_id: str, rollups: Sequence[StoredRollup]) -> None:
    """Write rows of roll-ups in place of those that are there."""
    if not rollups:
        return
    dialect = dialect_of(session)
    statement = dialect.insert(NodeReadingRollupRow)
    keys = [NodeReadingRollupRow.node_id, NodeReadingRollupRow.seconds, NodeReadingRollupRow.start]
    upsert = statement.on_conflict_do_update(index_elements=keys, set_={"data": statement.excluded.data})
    await session.execute(upsert, [{"node_id": node_id, **each._asdict()} for each in rollups])


# --- reading


async def newest_seq(session: AsyncSession) -> int:
    return await session.scalar(select(func.max(NodeReadingRow.seq))) or 0


async def after(session: AsyncSession, seq: int, limit: int, node_id: str | None = None) -> list[StoredReadings]:
    """Readings beyond `seq` in the order of arrival, of one node or of all."""
    query = _ROWS.where(NodeReadingRow.seq > seq)
    if node_id is not None:
        query = query.where(NodeReadingRow.node_id == node_id)
    return [StoredReadings(*row) for row in await session.execute(query.order_by(NodeReadingRow.seq).limit(limit))]


async def between(session: AsyncSession, node_id: str, first: float, last: float) -> list[StoredReadings]:
    """The readings of a node that may hold some of these times, in the order of time."""
    mine = (NodeReadingRow.node_id == node_id, NodeReadingRow.last_time >= first, NodeReadingRow.first_time <= last)
    return [StoredReadings(*row) for row in await session.execute(_ROWS.where(*mine).order_by(NodeReadingRow.last_time))]


async def rollups_between(session: AsyncSession, node_id: str, seconds: int, first: int, last: int) -> list[StoredRollup]:
    """The rows of one level of a node's roll-ups that start from `first` to `last`, in order."""
    table = NodeReadingRollupRow
    mine = (table.node_id == node_id, table.seconds == seconds, table.start.between(first, last))
    return [StoredRollup(*row) for row in await session.execute(_ROLLUPS.where(*mine).order_by(table.start))]


async def rollups_at(session: AsyncSession, node_id: str, keys: Collection[tuple[int, int]]) -> dict[tuple[int, int], bytes]:
    """The stored rows of roll-ups with these keys, by (seconds, start)."""
    table = NodeReadingRollupRow
    query = _ROLLUPS.where(table.node_id == node_id, tuple_(table.seconds, table.start).in_(list(keys)))
    return {(seconds, start): data for seconds, start, data in await session.execute(query)}


async def reach(session: AsyncSession, node_id: str, coarsest: int, row_seconds: int) -> tuple[float, float] | None:
    """The first and the last time of which something is known of a node.

    Where readings of single seconds are no longer kept as far back, the first is the start of a row of the coarsest roll-ups, which has
    `row_seconds`.
    """
    raw, rolled = NodeReadingRow, NodeReadingRollupRow
    first = await session.scalar(select(raw.first_time).where(raw.node_id == node_id).order_by(raw.last_time).limit(1))
    last = await session.scalar(select(raw.last_time).where(raw.node_id == node_id).order_by(raw.last_time.desc()).limit(1))
    mine = (rolled.node_id == node_id, rolled.seconds == coarsest)
    oldest, newest = (await session.execute(select(func.min(rolled.start), func.max(rolled.start)).where(*mine))).one()
    if first is None or last is None:
        return None if oldest is None else (float(oldest), float(newest))
    is_oldest = oldest is None or first < oldest + row_seconds
    return (first if is_oldest else float(oldest)), last


async def nodes_with_readings(session: AsyncSession) -> list[str]:
    """The nodes of which readings of single seconds are stored."""
    query = select(StoredDataRow.job_id).where(StoredDataRow.kind == RAW_READINGS, StoredDataRow.rows > 0).order_by(StoredDataRow.job_id)
    return list(await session.scalars(query))


async def marks_of(session: AsyncSession, node_ids: Sequence[str]) -> dict[str, int]:
    """Up to where the readings of each of these nodes are in the roll-ups."""
    found = await ingest.marks(session, [rollup_stream(node_id) for node_id in node_ids])
    return {node_id: found.get(rollup_stream(node_id), 0) for node_id in node_ids}


# --- deleting


async def drop_raw(session: AsyncSession, before: float | None, limit: int) -> int:
    """Delete at most so many rows of single seconds, the oldest first: those that are rolled up, and end `before`; None: of any age.
    Returns the bytes."""
    await lock(session)
    table, mark = NodeReadingRow, StreamMarkRow
    rolled = (mark.job_id == table.node_id) & (mark.stream == "reading_rollups") & (mark.seq >= table.seq)
    query = select(table.seq, table.node_id, func.length(table.data)).join(mark, rolled).order_by(table.last_time).limit(limit)
    rows = (await session.execute(query if before is None else query.where(table.last_time < before))).all()
    if rows:
        await session.execute(delete(table).where(table.seq.in_([seq for seq, _, _ in rows])))
    return await _subtract(session, 1, [(node_id, size) for _, node_id, size in rows])


async def drop_rollups(session: AsyncSession, seconds: int, before: int | None, limit: int) -> int:
    """Delete at most so many rows of one level, the oldest first: those that start `before`; None: of any age. Returns the bytes."""
    await lock(session)
    table = NodeReadingRollupRow
    query = select(table.node_id, table.start, func.length(table.data)).where(table.seconds == seconds)
    query = query if before is None else query.where(table.start < before)
    rows = (await session.execute(query.order_by(table.start).limit(limit))).all()
    keys = [(node_id, start) for node_id, start, _ in rows]
    if keys:
        await session.execute(delete(table).where(table.seconds == seconds, tuple_(table.node_id, table.start).in_(keys)))
    return await _subtract(session, seconds, [(node_id, size) for node_id, _, size in rows])


async def _subtract(session: AsyncSession, seconds: int, gone: Sequence[tuple[str, int]]) -> int:
    """Take deleted (node, bytes) off the counts. Returns the bytes of all."""
    kind, total = reading_kind(seconds), 0
    for node_id in {node_id for node_id, _ in gone}:
        sizes = [size + READING_ROW_BYTES for each, size in gone if each == node_id]
        total += sum(sizes)
        await _change_count(session, node_id, kind, -len(sizes), -sum(sizes))
    return total


async def _change_count(session: AsyncSession, node_id: str, kind: str, rows: int, size: int) -> None:
    row = await session.get(StoredDataRow, (node_id, kind), with_for_update=True)
    if row is not None:
        row.rows, row.bytes = max(0, row.rows + rows), max(0, row.bytes + size)
        await session.flush()
