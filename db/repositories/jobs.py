"""Queries about jobs, their generations and ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Text, and_, cast, exists, func, null, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from paceline.cluster.states import EndReason, JobState, NodeState, RankState
from paceline.db.models.experiments import TrialRow
from paceline.db.models.jobs import HOLDING, JOINED_LATER, OPEN, UNDECIDED, WAITING, GenerationRow, JobRow, RankRow
from paceline.db.models.nodes import NodeRow

SORTABLE: dict[str, InstrumentedAttribute[Any]] = {"created_at": JobRow.created_at, "name": JobRow.name, "priority": JobRow.priority}


class UnreachableRank(NamedTuple):
    """A rank that has not ended, on a node that is unreachable."""

    job_id: str
    rank: int
    node_id: str
    node_name: str
    heard_at: datetime  # when its node last was


class CompletedJob(NamedTuple):
    """A completed job, as far as its time goes."""

    document: Mapping[str, Any]  # its spec
    world_size: int
    ran_seconds: float


@dataclass(frozen=True)
class JobFilter:
    states: tuple[JobState, ...] = ()
    project: str | None = None
    text: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    experiment_id: str | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        conditions: list[ColumnElement[bool]] = [JobRow.labels[key].as_string() == value for key, value in self.labels]
        if self.states:
            conditions.append(JobRow.state.in_(self.states))
        if self.project is not None:
            conditions.append(JobRow.project == self.project)
        if self.text:
            conditions.append(or_(JobRow.name.icontains(self.text, autoescape=True), JobRow.id == self.text))
        if self.experiment_id is not None:
            conditions.append(JobRow.id.in_(select(TrialRow.job_id).where(TrialRow.experiment_id == self.experiment_id)))
        return conditions


async def get(session: AsyncSession, job_id: str) -> JobRow | None:
    return await session.get(JobRow, job_id)


async def get_locked(session: AsyncSession, job_id: str) -> JobRow | None:
    """The job's row, for a transaction that will change the job. SQLite's one writer needs no lock, and ignores this."""
    return await session.get(JobRow, job_id, with_for_update={"key_share": True}, populate_existing=True)


async def newest_completed(session: AsyncSession, limit: int) -> list[CompletedJob]:
    """The completed jobs that were submitted last, the newest first."""
    query = (
        select(JobRow.spec, JobRow.world_size, JobRow.ran_seconds)
        .where(JobRow.state == JobState.COMPLETED)
        .order_by(JobRow.id.desc())
        .limit(limit)
    )
    return [CompletedJob(spec.document, ranks, seconds) for spec, ranks, seconds in await session.execute(query)]


async def all_locked(session: AsyncSession, job_ids: Collection[str]) -> Sequence[JobRow]:
    """The rows of these jobs, for a transaction that will change them; in id order, so that two transactions never wait for each other."""
    query = select(JobRow).where(JobRow.id.in_(job_ids)).order_by(JobRow.id).with_for_update(key_share=True)
    return (await session.scalars(query.execution_options(populate_existing=True))).all()


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


async def undecided(session: AsyncSession, among: Collection[str] | None = None) -> Sequence[JobRow]:
    """Every job, or every one `among` these, that may move by itself: active, or asked to leave its pause or the queue."""
    query = select(JobRow).where(UNDECIDED).order_by(JobRow.id)
    return (await session.scalars(query if among is None else query.where(JobRow.id.in_(among)))).all()


async def quiet(session: AsyncSession) -> Sequence[JobRow]:
    """Running jobs of which a rank is quiet, or that seem to hang."""
    mine = and_(RankRow.job_id == JobRow.id, RankRow.generation == JobRow.generation)
    newest = and_(GenerationRow.job_id == JobRow.id, GenerationRow.generation == JobRow.generation)
    seems_hung = exists().where(newest, GenerationRow.hang.is_not(null()))
    is_quiet = exists().where(mine, RankRow.quiet_since.is_not(None))
    return (
        await session.scalars(select(JobRow).where(JobRow.state == JobState.RUNNING, or_(is_quiet, seems_hung)).order_by(JobRow.id))
    ).all()


async def in_state(session: AsyncSession, state: JobState) -> Sequence[JobRow]:
    return (await session.scalars(select(JobRow).where(JobRow.state == state).order_by(JobRow.id))).all()


async def queued(session: AsyncSession) -> Sequence[JobRow]:
    """Jobs that only wait for slots."""
    return (await session.scalars(select(JobRow).where(WAITING).order_by(JobRow.id))).all()


async def queue_mark(session: AsyncSession) -> str:
    """Id and version of each queued job, as one word: where it is the same, so is the queue. Empty: no job waits."""
    each = JobRow.id + ":" + cast(JobRow.version, Text)
    return await session.scalar(select(func.aggregate_strings(each, ",")).where(WAITING)) or ""


async def unchanged(session: AsyncSession, marks: Sequence[tuple[str, int]]) -> Sequence[JobRow]:
    """The jobs among these that still have this version, for a transaction that changes them."""
    query = select(JobRow).where(tuple_(JobRow.id, JobRow.version).in_(marks)).order_by(JobRow.id).with_for_update(key_share=True)
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


async def largest_world(session: AsyncSession, job_id: str) -> int:
    """The number of ranks of the job's largest generation; 0 before its first one."""
    return await session.scalar(select(func.max(GenerationRow.world_size)).where(GenerationRow.job_id == job_id)) or 0


async def newest_generations(session: AsyncSession, job_id: str, limit: int) -> Sequence[GenerationRow]:
    """The newest generations of a job, the oldest of them first."""
    query = select(GenerationRow).where(GenerationRow.job_id == job_id).order_by(GenerationRow.generation.desc()).limit(limit)
    return (await session.scalars(query)).all()[::-1]


async def has_carried_on(session: AsyncSession, job: JobRow, since: int) -> bool:
    """Whether a process from generation `since` is in the newest generation: the steps that it had done by then count."""
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


async def open_ranks_of_node(session: AsyncSession, node_id: str) -> Sequence[RankRow]:
    return await open_ranks_of_nodes(session, [node_id])


async def open_ranks_of_nodes(session: AsyncSession, node_ids: Collection[str]) -> Sequence[RankRow]:
    query = select(RankRow).where(RankRow.node_id.in_(node_ids), OPEN).order_by(RankRow.job_id, RankRow.generation, RankRow.rank)
    return (await session.scalars(query)).all()


async def open_ranks_to_report(session: AsyncSession, node_ids: Collection[str]) -> Mapping[str, Sequence[tuple[RankRow, GenerationRow]]]:
    """The open ranks by node, each with its generation."""
    query = (
        select(RankRow, GenerationRow)
        .join(GenerationRow, and_(GenerationRow.job_id == RankRow.job_id, GenerationRow.generation == RankRow.generation))
        .where(RankRow.node_id.in_(node_ids), OPEN)
        .order_by(RankRow.job_id, RankRow.generation, RankRow.rank)
    )
    found: defaultdict[str, list[tuple[RankRow, GenerationRow]]] = defaultdict(list)
    for rank, generation in await session.execute(query):
        found[rank.node_id].append((rank, generation))
    return found


async def nodes_with_open_ranks(session: AsyncSession, job_ids: Collection[str]) -> Sequence[str]:
    query = select(RankRow.node_id).where(RankRow.job_id.in_(job_ids), OPEN).distinct().order_by(RankRow.node_id)
    return (await session.scalars(query)).all()


async def ranks_with_nodes(session: AsyncSession, job_id: str, number: int) -> Sequence[tuple[RankRow, NodeRow]]:
    query = (
        select(RankRow, NodeRow)
        .join(NodeRow, NodeRow.id == RankRow.node_id)
        .where(RankRow.job_id == job_id, RankRow.generation == number)
        .order_by(RankRow.rank)
    )
    return [(rank, node) for rank, node in (await session.execute(query))]


async def all_ranks(session: AsyncSession, job_id: str) -> Sequence[tuple[RankRow, GenerationRow, NodeRow]]:
    """The ranks of every generation of a job with their nodes, in order; those of generations that are no longer kept are absent."""
    query = (
        select(RankRow, GenerationRow, NodeRow)
        .join(GenerationRow, (GenerationRow.job_id == RankRow.job_id) & (GenerationRow.generation == RankRow.generation))
        .join(NodeRow, NodeRow.id == RankRow.node_id)
        .where(RankRow.job_id == job_id)
        .order_by(RankRow.generation, RankRow.rank)
    )
    return [(rank, generation, node) for rank, generation, node in await session.execute(query)]


async def unreachable_ranks(session: AsyncSession, keys: Sequence[tuple[str, int]]) -> list[UnreachableRank]:
    """The ranks of these (job, generation) pairs that are out of reach, by job, by name of their node and by number."""
    if not keys:
        return []
    mine = (tuple_(RankRow.job_id, RankRow.generation).in_(keys), HOLDING, RankRow.state != RankState.LOST)
    query = (
        select(RankRow.job_id, RankRow.rank, NodeRow.id, NodeRow.name, func.coalesce(NodeRow.heartbeat_at, NodeRow.joined_at))
        .join(NodeRow, NodeRow.id == RankRow.node_id)
        .where(*mine, NodeRow.state == NodeState.UNREACHABLE)
        .order_by(RankRow.job_id, NodeRow.name, RankRow.rank)
    )
    return [UnreachableRank(*row) for row in await session.execute(query)]


async def by_id(session: AsyncSession, job_ids: Collection[str]) -> dict[str, JobRow]:
    return {row.id: row for row in await session.scalars(select(JobRow).where(JobRow.id.in_(job_ids)))}


async def count_by_state(session: AsyncSession) -> dict[str, int]:
    query = select(JobRow.state, func.count()).group_by(JobRow.state)
    return {state.value: count for state, count in (await session.execute(query))}


async def running(session: AsyncSession) -> Sequence[JobRow]:
    return await in_state(session, JobState.RUNNING)


async def resized_since(session: AsyncSession, job_ids: Collection[str], since: datetime) -> dict[str, int]:
    """How many generations of each job have ended for another size."""
    mine = (GenerationRow.job_id.in_(job_ids), GenerationRow.end_reason == EndReason.RESIZED, GenerationRow.ended_at > since)
    query = select(GenerationRow.job_id, func.count()).where(*mine).group_by(GenerationRow.job_id)
    return {str(job_id): int(count) for job_id, count in (await session.execute(query))}


async def joiners(session: AsyncSession, job_ids: Collection[str], since: datetime) -> Sequence[tuple[RankRow, GenerationRow]]:
    """Ranks that joined from being parked, or failed while parked, with their generations, the earliest to end first."""
    query = (
        select(RankRow, GenerationRow)
        .join(GenerationRow, and_(GenerationRow.job_id == RankRow.job_id, GenerationRow.generation == RankRow.generation))
        .where(RankRow.job_id.in_(job_ids), JOINED_LATER, RankRow.updated_at > since)
        .order_by(RankRow.updated_at)
    )
    return [(rank, generation) for rank, generation in (await session.execute(query))]
