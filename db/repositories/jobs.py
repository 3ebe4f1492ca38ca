"""Queries about jobs, their generations and ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, func, or_, select, true, tuple_
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from cluster.states import ACTIVE_JOB_STATES, Intent, JobState, RankState
from db.models.jobs import GenerationRow, JobRow, RankRow
from db.models.nodes import NodeRow

SORTABLE: dict[str, InstrumentedAttribute[Any]] = {"created_at": JobRow.created_at, "name": JobRow.name, "priority": JobRow.priority}


@dataclass(frozen=True)
class JobFilter:
    states: tuple[JobState, ...] = ()
    project: str | None = None
    text: str | None = None
    labels: tuple[tuple[str, str], ...] = ()

    def conditions(self) -> list[ColumnElement[bool]]:
        conditions: list[ColumnElement[bool]] = [JobRow.labels[key].as_string() == value for key, value in self.labels]
        if self.states:
            conditions.append(JobRow.state.in_(self.states))
        if self.project is not None:
            conditions.append(JobRow.project == self.project)
        if self.text:
            conditions.append(or_(JobRow.name.icontains(self.text, autoescape=True), JobRow.id == self.text))
        return conditions


async def get(session: AsyncSession, job_id: str) -> JobRow | None:
    return await session.get(JobRow, job_id)


async def get_locked(session: AsyncSession, job_id: str) -> JobRow | None:
    """For a transaction that will change the job. SQLite's one writer needs no lock, and ignores this."""
    return await session.get(JobRow, job_id, with_for_update={"key_share": True}, populate_existing=True)


async def page(
    session: AsyncSession, wanted: JobFilter, *, sort: str, descending: bool, after: tuple[Any, str] | None, limit: int
) -> Sequence[JobRow]:
    column = SORTABLE[sort]
    query = select(JobRow).where(*wanted.conditions()).limit(limit)
    query = query.order_by(column.desc(), JobRow.id.desc()) if descending else query.order_by(column.asc(), JobRow.id.asc())
    if after is not None:
        here, there = tuple_(column, JobRow.id), tuple_(*after)
        query = query.where(here < there if descending else here > there)
    return (await session.scalars(query)).all()


async def undecided(session: AsyncSession) -> Sequence[JobRow]:
    """Every job that may move by itself: active, waiting for slots, or asked to leave its pause."""
    resting = and_(JobRow.state == JobState.PAUSED, JobRow.desired != Intent.PAUSE)
    query = select(JobRow).where(or_(JobRow.state.in_({*ACTIVE_JOB_STATES, JobState.QUEUED}), resting)).order_by(JobRow.id)
    return (await session.scalars(query)).all()


async def generation(session: AsyncSession, job_id: str, number: int) -> GenerationRow | None:
    return await session.get(GenerationRow, (job_id, number))


async def generations(session: AsyncSession, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], GenerationRow]:
    if not keys:
        return {}
    query = select(GenerationRow).where(tuple_(GenerationRow.job_id, GenerationRow.generation).in_(keys))
    return {(row.job_id, row.generation): row for row in await session.scalars(query)}


async def generations_of(session: AsyncSession, job_id: str) -> Sequence[GenerationRow]:
    query = select(GenerationRow).where(GenerationRow.job_id == job_id).order_by(GenerationRow.generation)
    return (await session.scalars(query)).all()


async def has_carried_on(session: AsyncSession, job: JobRow, since: int) -> bool:
    """Whether a process that was there in generation `since` is in the newest one: what it had reached by then stands."""
    mine = (RankRow.job_id == job.id, RankRow.generation == job.generation, RankRow.born_generation <= since)
    return await session.scalar(select(func.count()).select_from(RankRow).where(*mine)) != 0


async def ranks(session: AsyncSession, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], list[RankRow]]:
    """The ranks of these (job, generation) pairs, in rank order."""
    found: defaultdict[tuple[str, int], list[RankRow]] = defaultdict(list)
    if keys:
        query = select(RankRow).where(tuple_(RankRow.job_id, RankRow.generation).in_(keys)).order_by(RankRow.rank)
        for row in await session.scalars(query):
            found[row.job_id, row.generation].append(row)
    return found


def _open() -> ColumnElement[bool]:
    """Not yet confirmed gone with everything it left behind acknowledged: its node must still be told what to do with it."""
    return or_(RankRow.state.not_in([RankState.EXITED, RankState.MOVED]), RankRow.drained.is_(False))


async def open_ranks_of_node(session: AsyncSession, node_id: str) -> Sequence[RankRow]:
    query = select(RankRow).where(RankRow.node_id == node_id, _open()).order_by(RankRow.job_id, RankRow.generation, RankRow.rank)
    return (await session.scalars(query)).all()


async def nodes_with_open_ranks(session: AsyncSession, job_id: str) -> Sequence[str]:
    query = select(RankRow.node_id).where(RankRow.job_id == job_id, _open()).distinct().order_by(RankRow.node_id)
    return (await session.scalars(query)).all()


async def holders(session: AsyncSession, node_id: str | None = None) -> Sequence[tuple[RankRow, str]]:
    """(rank, its job's name) for every slot in use: a lost rank holds its slot until its node confirms that it is gone."""
    query = (
        select(RankRow, JobRow.name)
        .join(JobRow, JobRow.id == RankRow.job_id)
        .where(RankRow.state.not_in([RankState.EXITED, RankState.MOVED]), RankRow.node_id == node_id if node_id else true())
        .order_by(RankRow.node_id, RankRow.slot)
    )
    return [(rank, name) for rank, name in (await session.execute(query))]


async def ranks_with_nodes(session: AsyncSession, job_id: str, number: int) -> Sequence[tuple[RankRow, NodeRow]]:
    query = (
        select(RankRow, NodeRow)
        .join(NodeRow, NodeRow.id == RankRow.node_id)
        .where(RankRow.job_id == job_id, RankRow.generation == number)
        .order_by(RankRow.rank)
    )
    return [(rank, node) for rank, node in (await session.execute(query))]


async def count_by_state(session: AsyncSession) -> dict[str, int]:
    query = select(JobRow.state, func.count()).group_by(JobRow.state)
    return {state.value: count for state, count in (await session.execute(query))}


async def running(session: AsyncSession) -> Sequence[JobRow]:
    return (await session.scalars(select(JobRow).where(JobRow.state == JobState.RUNNING))).all()


async def joiners(session: AsyncSession, job_ids: Collection[str], since: datetime) -> Sequence[tuple[RankRow, GenerationRow]]:
    """With their generations, the earliest to end first: whoever came to its generation from being parked, and who failed while parked."""
    failed = and_(RankRow.parked, RankRow.state == RankState.EXITED, RankRow.outcome == "failed")
    query = (
        select(RankRow, GenerationRow)
        .join(GenerationRow, and_(GenerationRow.job_id == RankRow.job_id, GenerationRow.generation == RankRow.generation))
        .where(RankRow.job_id.in_(job_ids), or_(failed, RankRow.newcomer), RankRow.updated_at > since)
        .order_by(RankRow.updated_at)
    )
    return [(rank, generation) for rank, generation in (await session.execute(query))]
