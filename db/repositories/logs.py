"""Reading log lines, and whether more of them can come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import exists, select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.cluster.states import TERMINAL_JOB_STATES, JobState, NodeState, RankState
from paceline.db.models.jobs import JobRow, RankRow
from paceline.db.models.metrics import LogLineRow
from paceline.db.models.nodes import NodeRow


class LogColumns(NamedTuple):
    seq: int
    rank: int
    generation: int
    time: float
    level: str
    text: str


@dataclass(frozen=True)
class LogQuery:
    """The lines to read; None: no restriction."""

    ranks: Sequence[int] | None = None
    levels: Sequence[str] | None = None
    contains: str | None = None


_COLUMNS = (LogLineRow.seq, LogLineRow.rank, LogLineRow.generation, LogLineRow.time, LogLineRow.level, LogLineRow.text)


async def newest_seq(session: AsyncSession, job_id: str) -> int:
    query = select(LogLineRow.seq).where(LogLineRow.job_id == job_id).order_by(LogLineRow.seq.desc()).limit(1)
    return (await session.scalar(query)) or 0


async def page(
    session: AsyncSession, job_id: str, *, after: int, up_to: int, limit: int, newest: bool = False, where: LogQuery | None = None
) -> list[LogColumns]:
    """Lines with after < seq <= up_to in order: the oldest `limit` of them, or the newest."""
    where = where or LogQuery()
    query = select(*_COLUMNS).where(LogLineRow.job_id == job_id, LogLineRow.seq > after, LogLineRow.seq <= up_to)
    if where.ranks is not None:
        query = query.where(LogLineRow.rank.in_(where.ranks))
    if where.levels is not None:
        query = query.where(LogLineRow.level.in_(where.levels))
    if where.contains:
        query = query.where(LogLineRow.text.icontains(where.contains, autoescape=True))
    query = query.order_by(LogLineRow.seq.desc() if newest else LogLineRow.seq).limit(limit)
    rows = [LogColumns(*row) for row in await session.execute(query)]
    return rows[::-1] if newest else rows


async def job_state(session: AsyncSession, job_id: str) -> JobState | None:
    """The state of a job; None: there is no such job."""
    return await session.scalar(select(JobRow.state).where(JobRow.id == job_id))


async def is_complete(session: AsyncSession, job_id: str) -> bool:
    """Whether the job has ended, and each of its ranks has sent its last line or can never send it."""
    state = await job_state(session, job_id)
    if state not in TERMINAL_JOB_STATES:
        return False
    waiting = (
        select(RankRow.rank)
        .join(NodeRow, NodeRow.id == RankRow.node_id)
        .where(
            RankRow.job_id == job_id,
            RankRow.drained.is_(False),
            RankRow.state.not_in([RankState.ASSIGNED, RankState.LOST]),
            NodeRow.state.not_in([NodeState.LOST, NodeState.GONE]),
        )
    )
    return not await session.scalar(select(exists(waiting)))
