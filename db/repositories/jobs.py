"""Queries about jobs, their generations and ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, Text, and_, cast, exists, func, literal, not_, null, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from paceline.cluster.states import TERMINAL_JOB_STATES, EndReason, JobState, NodeState, RankState
from paceline.db.models.experiments import ExperimentRow, TrialRow
from paceline.db.models.jobs import HOLDING, JOINED_LATER, OPEN, UNDECIDED, WAITING, GenerationRow, JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories.names import begins_id

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
    """The conditions that the jobs of a list meet. Of several values of one kind, any matches."""

    states: tuple[JobState, ...] = ()
    projects: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    name: str | None = None
    text: str | None = None
    experiment: str | None = None  # id or name
    created_after: datetime | None = None
    created_before: datetime | None = None
    trials: bool | None = None  # whether they are trials of experiments; None: either
    archived: bool | None = False  # None: either

    def conditions(self) -> list[ColumnElement[bool]]:
        conditions: list[ColumnElement[bool]] = [JobRow.labels[key].as_string() == value for key, value in self.labels]
        one_of = (
            (JobRow.state, self.states),
            (JobRow.project, self.projects),
            (JobRow.created_by, self.users),
            (JobRow.model, self.models),
        )
        conditions += [column.in_(values) for column, values in one_of if values]
        if self.name is not None:
            conditions.append(JobRow.name == self.name)
        if self.text:
            conditions.append(_holds(self.text))
        if self.experiment is not None:
            mine = or_(ExperimentRow.id == self.experiment, ExperimentRow.name == self.experiment)
            trials = select(TrialRow.job_id).join(ExperimentRow, ExperimentRow.id == TrialRow.experiment_id).where(mine)
            conditions.append(JobRow.id.in_(trials))
        if self.trials is not None:
            is_trial = select(TrialRow.job_id).where(TrialRow.job_id == JobRow.id).exists()
            conditions.append(is_trial if self.trials else ~is_trial)
        if self.created_after is not None:
            conditions.append(JobRow.created_at >= self.created_after)
        if self.created_before is not None:
            conditions.append(JobRow.created_at < self.created_before)
        if self.archived is not None:
            conditions.append(JobRow.archived_at.is_not(None) if self.archived else JobRow.archived_at.is_(None))
        return conditions


def _holds(text: str) -> ColumnElement[bool]:
    """Whether a job holds this text, or its id begins with it."""
    return or_(JobRow.search_text.contains(text.casefold(), autoescape=True), begins_id(text, JobRow.id))


@dataclass(frozen=True)
class JobOrder:
    """The order of a list of jobs, and where a page of it begins."""

    column: str
    descending: bool
    after: tuple[Any, str] | None = None  # the column's value and the id of the last job of the page before

    def beyond(self) -> ColumnElement[bool]:
        """Whether a job comes after `after`."""
        assert self.after is not None
        here, there = tuple_(SORTABLE[self.column], JobRow.id), tuple_(*self.after)
        return here < there if self.descending else here > there


async def get(session: AsyncSession, job_id: str) -> JobRow | None:
    return await session.get(JobRow, job_id)


async def state_of(session: AsyncSession, job_id: str) -> JobState | None:
    """The state of a job; None: there is no such job."""
    return await session.scalar(select(JobRow.state).where(JobRow.id == job_id))


async def of_ids(session: AsyncSession, job_ids: Collection[str]) -> Sequence[JobRow]:
    """The jobs with these ids."""
    return (await session.scalars(select(JobRow).where(JobRow.id.in_(job_ids)))).all()


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


async def page(session: AsyncSession, wanted: JobFilter, order: JobOrder, limit: int) -> Sequence[JobRow]:
    column = SORTABLE[order.column]
    query = select(JobRow).where(*wanted.conditions()).limit(limit)
    query = query.order_by(column.desc(), JobRow.id.desc()) if order.descending else query.order_by(column.asc(), JobRow.id.asc())
    if order.after is not None:
        query = query.where(order.beyond())
    return (await session.scalars(query)).all()


async def counts(session: AsyncSession, wanted: JobFilter, order: JobOrder) -> tuple[int, int]:
    """Return (how many jobs match, how many of them come before the page)."""
    before = literal(0) if order.after is None else func.count().filter(not_(order.beyond()))
    total, passed = (await session.execute(select(func.count(JobRow.id), before).where(*wanted.conditions()))).one()
    return int(total), int(passed)


async def facets(session: AsyncSession, column: InstrumentedAttribute[str], limit: int) -> Sequence[str]:
    """The values that jobs have in one column, in order."""
    return (await session.scalars(select(column).distinct().order_by(column).limit(limit))).all()


async def label_sets(session: AsyncSession, limit: int) -> Sequence[dict[str, str]]:
    """The labels that jobs have together, each set once; those of the newest jobs first."""
    query = select(JobRow.labels).group_by(JobRow.labels).order_by(func.max(JobRow.id).desc())
    return (await session.scalars(query.limit(limit))).all()


async def undecided(session: AsyncSession, among: Collection[str] | None = None) -> Sequence[JobRow]:
    """Every job, or every one `among` these, that may move by itself: active, or asked to leave its pause or the queue."""
    query = select(JobRow).where(UNDECIDED).order_by(JobRow.id)
    return (await session.scalars(query if among is None else query.where(JobRow.id.in_(among)))).all()


def _quiet() -> Select[JobRow]:
    mine = and_(RankRow.job_id == JobRow.id, RankRow.generation == JobRow.generation)
    newest = and_(GenerationRow.job_id == JobRow.id, GenerationRow.generation == JobRow.generation)
    seems_hung = exists().where(newest, GenerationRow.hang.is_not(null()))
    is_quiet = exists().where(mine, RankRow.quiet_since.is_not(None))
    return select(JobRow).where(JobRow.state == JobState.RUNNING, or_(is_quiet, seems_hung)).order_by(JobRow.id)


QUIET = _quiet()


async def quiet(session: AsyncSession) -> Sequence[JobRow]:
    """Running jobs of which a rank is quiet, or that seem to hang."""
    return (await session.scalars(QUIET)).all()


async def in_state(session: AsyncSession, state: JobState) -> Sequence[JobRow]:
    return (await session.scalars(select(JobRow).where(JobRow.state == state).order_by(JobRow.id))).all()


async def smaller_than_wanted(session: AsyncSession) -> Sequence[JobRow]:
    """Running jobs of which it is known why they have no more ranks, and jobs that stop for another size."""
    lacks = and_(JobRow.state == JobState.RUNNING, JobRow.pending.is_not(null()))
    resizes = and_(JobRow.state == JobState.STOPPING, JobRow.end_reason == EndReason.RESIZED)
    return (await session.scalars(select(JobRow).where(UNDECIDED, or_(lacks, resizes)).order_by(JobRow.id))).all()


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


async def first_generation_since(session: AsyncSession, job_id: str, moment: datetime) -> int | None:
    """The first generation of a job that was placed at this moment or later."""
    query = select(func.min(GenerationRow.generation)).where(GenerationRow.job_id == job_id, GenerationRow.started_at >= moment)
    found: int | None = await session.scalar(query)
    return found


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


async def discount_held_time(session: AsyncSession, seconds: float) -> None:
    """Have no job that holds slots be charged for so many seconds, which were none: the clock was set forward by them, or back if negative."""
    newest = GenerationRow.job_id == JobRow.id, GenerationRow.generation == JobRow.generation
    holds_slots = exists().where(*newest, GenerationRow.ended_at.is_(None))
    await session.execute(update(JobRow).where(holds_slots).values(ran_seconds=JobRow.ran_seconds - seconds))


async def largest_world(session: AsyncSession, job_id: str) -> int:
    """The number of ranks of the job's largest generation; 0 before its first one."""
    return await session.scalar(select(func.max(GenerationRow.world_size)).where(GenerationRow.job_id == job_id)) or 0


async def newest_generations(session: AsyncSession, job_id: str, limit: int) -> Sequence[GenerationRow]:
    """The newest generations of a job, the oldest of them first."""
    query = select(GenerationRow).where(GenerationRow.job_id == job_id).order_by(GenerationRow.generation.desc()).limit(limit)
    return (await session.scalars(query)).all()[::-1]


async def least_start_step(session: AsyncSession, job_id: str, after: int) -> int:
    """The least step from which a generation later than `after` went on; 0 where there is none, or one has not begun."""
    mine = (GenerationRow.job_id == job_id, GenerationRow.generation > after)
    return await session.scalar(select(func.min(GenerationRow.start_step)).where(*mine)) or 0


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


def still_sending() -> Select[str]:
    """The jobs of which a rank has records on its node that may still arrive: it runs, or has ended and not sent everything."""
    return (
        select(RankRow.job_id)
        .join(NodeRow, NodeRow.id == RankRow.node_id)
        .where(
            OPEN,  # by its index
            RankRow.drained.is_(False),
            RankRow.state.not_in([RankState.ASSIGNED, RankState.LOST]),
            NodeRow.state.not_in([NodeState.LOST, NodeState.GONE]),
        )
    )


async def ranks_with_nodes(session: AsyncSession, job_id: str, number: int) -> Sequence[tuple[RankRow, NodeRow]]:
    query = select(RankRow).where(RankRow.job_id == job_id, RankRow.generation == number).order_by(RankRow.rank)
    ranks = (await session.scalars(query)).all()
    nodes = await node_rows.by_id(session, {rank.node_id for rank in ranks})
    return [(rank, nodes[rank.node_id]) for rank in ranks]


async def all_ranks(session: AsyncSession, job_id: str) -> Sequence[tuple[RankRow, GenerationRow, NodeRow]]:
    """The ranks of every generation of a job with their nodes, in order; those of generations that are no longer kept are absent."""
    query = select(RankRow).where(RankRow.job_id == job_id).order_by(RankRow.generation, RankRow.rank)
    ranks = (await session.scalars(query)).all()
    numbers = {rank.generation for rank in ranks}
    kept = await session.scalars(select(GenerationRow).where(GenerationRow.job_id == job_id, GenerationRow.generation.in_(numbers)))
    generations = {generation.generation: generation for generation in kept}
    nodes = await node_rows.by_id(session, {rank.node_id for rank in ranks})
    return [(rank, generations[rank.generation], nodes[rank.node_id]) for rank in ranks if rank.generation in generations]


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


async def not_ended_before(session: AsyncSession, job_ids: Collection[str], before: datetime) -> set[str]:
    """Return those of these jobs that have not ended, or only after `before`."""
    lasts = or_(JobRow.state.not_in(TERMINAL_JOB_STATES), JobRow.ended_at > before)
    return set(await session.scalars(select(JobRow.id).where(JobRow.id.in_(job_ids), lasts)))


async def count_by_state(session: AsyncSession) -> dict[str, int]:
    query = select(JobRow.state, func.count()).group_by(JobRow.state)
    return {state.value: count for state, count in (await session.execute(query))}


async def running(session: AsyncSession) -> Sequence[JobRow]:
    return await in_state(session, JobState.RUNNING)


async def joiners(session: AsyncSession, job_ids: Collection[str], since: datetime) -> Sequence[tuple[RankRow, GenerationRow]]:
    """Ranks that joined from being parked, or failed while parked, with their generations, the earliest to end first."""
    query = (
        select(RankRow, GenerationRow)
        .join(GenerationRow, and_(GenerationRow.job_id == RankRow.job_id, GenerationRow.generation == RankRow.generation))
        .where(RankRow.job_id.in_(job_ids), JOINED_LATER, RankRow.updated_at > since)
        .order_by(RankRow.updated_at, RankRow.job_id, RankRow.generation, RankRow.rank)
    )
    return [(rank, generation) for rank, generation in (await session.execute(query))]
