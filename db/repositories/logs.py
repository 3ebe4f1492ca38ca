"""Reading log lines, and whether more of them can come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, exists, select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.cluster.states import TERMINAL_JOB_STATES
from paceline.db.dialects import is_postgres
from paceline.db.models.jobs import RankRow
from paceline.db.models.metrics import LogLineRow
from paceline.db.repositories import jobs as job_rows

#: Context of a line is looked for among so many rows before and after it, of whichever job and rank these are.
CONTEXT_REACH = 10_000
_ESCAPE = "/"


class LogColumns(NamedTuple):
    seq: int
    rank: int
    generation: int
    time: float
    level: str
    text: str


@dataclass(frozen=True)
class LogQuery:
    """The lines to read; None: no restriction. `since` and `until`: seconds since the epoch, both included."""

    ranks: Sequence[int] | None = None
    levels: Sequence[str] | None = None
    contains: str | None = None
    since: float | None = None
    until: float | None = None


_COLUMNS = (LogLineRow.seq, LogLineRow.rank, LogLineRow.generation, LogLineRow.time, LogLineRow.level, LogLineRow.text)


async def newest_seq(session: AsyncSession, job_id: str) -> int:
    query = select(LogLineRow.seq).where(LogLineRow.job_id == job_id).order_by(LogLineRow.seq.desc()).limit(1)
    return (await session.scalar(query)) or 0


async def seq_of_line(session: AsyncSession, job_id: str, number: int) -> int | None:
    """The `seq` of the line with this number in the whole log, counted from 1; None: there are fewer lines."""
    query = select(LogLineRow.seq).where(LogLineRow.job_id == job_id).order_by(LogLineRow.seq).offset(number - 1).limit(1)
    seq: int | None = await session.scalar(query)
    return seq


async def page(
    session: AsyncSession, job_id: str, *, after: int, up_to: int, limit: int, newest: bool = False, where: LogQuery | None = None
) -> list[LogColumns]:
    """Lines with after < seq <= up_to in order: the oldest `limit` of them, or the newest."""
    query = select(*_COLUMNS).where(LogLineRow.job_id == job_id, LogLineRow.seq > after, LogLineRow.seq <= up_to)
    query = query.where(*_conditions(where or LogQuery(), for_postgres=is_postgres(session)))
    return await _rows(session, query, limit, newest=newest)


def _conditions(where: LogQuery, *, for_postgres: bool) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if where.ranks is not None:
        conditions.append(LogLineRow.rank.in_(where.ranks))
    if where.levels is not None:
        conditions.append(LogLineRow.level.in_(where.levels))
    if where.since is not None:
        conditions.append(LogLineRow.time >= where.since)
    if where.until is not None:
        conditions.append(LogLineRow.time <= where.until)
    if where.contains:
        conditions.append(_contains(where.contains, for_postgres=for_postgres))
    return conditions


def _contains(text: str, *, for_postgres: bool) -> ColumnElement[bool]:
    """Whether a line contains `text`, in any case. SQLite's LIKE ignores case by itself: with ILIKE, SQLAlchemy would lower each line
    first, which takes as long again as the search."""
    for special in (_ESCAPE, "%", "_"):
        text = text.replace(special, _ESCAPE + special)
    compare = LogLineRow.text.ilike if for_postgres else LogLineRow.text.like
    return compare(f"%{text}%", escape=_ESCAPE)


async def before_and_after(session: AsyncSession, job_id: str, line: LogColumns, count: int) -> list[LogColumns]:
    """The `count` lines that the same rank printed before a line, and those after it, as far as they are near."""
    query = select(*_COLUMNS).where(LogLineRow.job_id == job_id, LogLineRow.rank == line.rank, LogLineRow.generation == line.generation)
    before = query.where(LogLineRow.seq < line.seq, LogLineRow.seq >= line.seq - CONTEXT_REACH)
    after = query.where(LogLineRow.seq > line.seq, LogLineRow.seq <= line.seq + CONTEXT_REACH)
    return [*await _rows(session, before, count, newest=True), *await _rows(session, after, count, newest=False)]


async def _rows(session: AsyncSession, query: Select[*tuple[Any, ...]], limit: int, *, newest: bool) -> list[LogColumns]:
    """The first `limit` rows in the order of arrival, or the last ones."""
    query = query.order_by(LogLineRow.seq.desc() if newest else LogLineRow.seq).limit(limit)
    rows = [LogColumns(*row) for row in await session.execute(query)]
    return rows[::-1] if newest else rows


async def is_complete(session: AsyncSession, job_id: str) -> bool:
    """Whether the job has ended, and each of its ranks has sent its last line or can never send it."""
    state = await job_rows.state_of(session, job_id)
    if state not in TERMINAL_JOB_STATES:
        return False
    waiting = job_rows.still_sending().where(RankRow.job_id == job_id)
    return not await session.scalar(select(exists(waiting)))
