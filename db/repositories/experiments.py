"""Queries about experiments and their trials."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, and_, func, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute, undefer

from paceline.cluster.states import TERMINAL_JOB_STATES, EndReason, Intent, JobState
from paceline.db.dialects import dialect_of
from paceline.db.models.experiments import ExperimentRow, TrialRow
from paceline.db.models.jobs import GenerationRow, JobRow
from paceline.db.repositories.jobs import still_sending
from paceline.db.repositories.names import named_or_begun

SORTABLE: dict[str, InstrumentedAttribute[Any]] = {"created_at": ExperimentRow.created_at, "name": ExperimentRow.name}


@dataclass(frozen=True)
class ExperimentFilter:
    states: tuple[str, ...] = ()
    project: str | None = None
    text: str | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        conditions: list[ColumnElement[bool]] = []
        if self.states:
            conditions.append(ExperimentRow.state.in_(self.states))
        if self.project is not None:
            conditions.append(ExperimentRow.project == self.project)
        if self.text:
            conditions.append(named_or_begun(self.text, ExperimentRow.name, ExperimentRow.id))
        return conditions


@dataclass(frozen=True, slots=True)
class TrialColumns:
    """The columns of a `TrialRow` that are read of all trials at once: without its document, and several times faster than whole rows."""

    index: int
    key: str
    configuration: int
    repeat: int
    values: dict[str, Any]
    world_size: int
    baseline: bool
    refusal: str | None
    job_id: str | None
    in_grid: bool
    reused: bool
    cancelled: bool
    pruned: bool
    paused_for: str | None
    rungs: list[dict[str, Any]]
    metric: float | None
    samples_per_second: float | None
    metric_step: int
    metric_is_final: bool


_TRIAL = tuple(getattr(TrialRow, field.name) for field in fields(TrialColumns))


class TrialJobColumns(NamedTuple):
    """The columns of a trial's job that are read."""

    id: str
    name: str
    state: JobState
    desired: Intent
    end_reason: EndReason | None
    pending: dict[str, Any] | None
    progress: dict[str, Any] | None
    world_size: int
    ran_seconds: float  # of generations that have ended
    running_since: datetime | None  # of the one that has not
    state_since: datetime
    is_sending: bool  # a rank of it has records that may still arrive

    @property
    def resting_step(self) -> int | None:
        """The step at which the job rests or has ended; None: it is at work, or about to be. A paused one goes on from its newest checkpoint. A
        completed one has done all its steps: the last ones are told a moment later."""
        if self.state is JobState.PAUSED and self.desired is not Intent.RUN:
            return self._told("last_checkpoint_step")
        if self.state not in TERMINAL_JOB_STATES:
            return None
        done = self.total_steps if self.state is JobState.COMPLETED else None
        return max(self._told("step"), self._told("last_checkpoint_step"), done or 0)

    @property
    def step(self) -> int:
        return self._told("step") if self.resting_step is None else self.resting_step

    @property
    def total_steps(self) -> int | None:
        total: int | None = (self.progress or {}).get("total_steps")
        return total

    def _told(self, name: str) -> int:
        return int((self.progress or {}).get(name) or 0)

    def held_seconds(self, now: datetime) -> float:
        """How long it has held slots."""
        return max(0.0, self.ran_seconds + ((now - self.running_since).total_seconds() if self.running_since else 0.0))


class TrialFigures(NamedTuple):
    """The experiment's metric of one trial, and its speed, from the points of its job. `step`: how far that was when they were read;
    `is_final`: it rested there, or had ended, and no more of its points were to come."""

    job_id: str
    metric: float | None
    samples_per_second: float | None
    step: int
    is_final: bool


class TrialWithJob(NamedTuple):
    trial: TrialColumns
    job: TrialJobColumns | None


class JobTrial(NamedTuple):
    """The trial that a job was submitted for."""

    experiment_id: str
    experiment_name: str
    trial: int  # its index


class TrialTally(NamedTuple):
    """Trials of one experiment that are alike in these columns."""

    experiment_id: str
    in_grid: bool
    is_refused: bool
    is_pruned: bool
    is_cancelled: bool
    job_state: JobState | None
    holds_slots: bool
    world_size: int
    trials: int
    ran_seconds: float  # of them all together, in generations that have ended


class HoldingTrial(NamedTuple):
    """A trial whose job holds slots now."""

    experiment_id: str
    is_left: bool  # the experiment waits for its end: it is of the present grid, and not given up
    world_size: int  # that the trial asks for
    ranks: int  # that hold slots
    since: datetime
    ran_seconds: float  # in generations that have ended


class ResizedSpan(NamedTuple):
    """A generation of a trial's job that has ended, and had more or fewer ranks than the trial asks for."""

    experiment_id: str
    trial: int  # its index
    world_size: int  # that the trial asks for
    ranks: int
    started_at: datetime
    ended_at: datetime

    @property
    def extra_slot_seconds(self) -> float:
        """The slot-seconds that it had beyond those of as many ranks as the trial asks for; below 0 where it had fewer."""
        return (self.ranks - self.world_size) * max(0.0, (self.ended_at - self.started_at).total_seconds())


# --- experiments


async def get(session: AsyncSession, experiment_id: str) -> ExperimentRow | None:
    return await session.get(ExperimentRow, experiment_id)


async def get_locked(session: AsyncSession, experiment_id: str) -> ExperimentRow | None:
    """The experiment's row, for a transaction that changes it or its trials. SQLite's one writer needs no lock, and ignores this."""
    return await session.get(ExperimentRow, experiment_id, with_for_update=True, populate_existing=True)


async def claim_name(session: AsyncSession, values: Mapping[str, Any]) -> ExperimentRow:
    """The locked experiment of this project and name: made with `values`, unless there is one."""
    dialect = dialect_of(session)
    await session.execute(dialect.insert(ExperimentRow).values(**values).on_conflict_do_nothing(index_elements=["project", "name"]))
    query = select(ExperimentRow).where(ExperimentRow.project == values["project"], ExperimentRow.name == values["name"])
    return (await session.scalars(query.with_for_update().execution_options(populate_existing=True))).one()


async def by_name(session: AsyncSession, project: str, name: str) -> ExperimentRow | None:
    return await session.scalar(select(ExperimentRow).where(ExperimentRow.project == project, ExperimentRow.name == name))


_UNSETTLED = select(ExperimentRow.id).where(ExperimentRow.settled.is_(False)).order_by(ExperimentRow.id)


async def unsettled(session: AsyncSession) -> Sequence[str]:
    """The ids of experiments with which something may be to be done."""
    return (await session.scalars(_UNSETTLED)).all()


async def discount_running_time(session: AsyncSession, seconds: float) -> None:
    """Have no running experiment be charged for so many seconds, which were none: the clock was set forward by them, or back if negative."""
    running = update(ExperimentRow).where(ExperimentRow.state == "running")
    await session.execute(running.values(ran_seconds=ExperimentRow.ran_seconds - seconds))


async def page(
    session: AsyncSession, wanted: ExperimentFilter, *, sort: str, descending: bool, after: tuple[Any, str] | None, limit: int
) -> Sequence[ExperimentRow]:
    column = SORTABLE[sort]
    query = select(ExperimentRow).where(*wanted.conditions()).limit(limit)
    query = query.order_by(column.desc(), ExperimentRow.id.desc()) if descending else query.order_by(column.asc(), ExperimentRow.id.asc())
    if after is not None:
        here, there = tuple_(column, ExperimentRow.id), tuple_(*after)
        query = query.where(here < there if descending else here > there)
    return (await session.scalars(query)).all()


# --- trials


_OPEN_GENERATION = and_(GenerationRow.job_id == JobRow.id, GenerationRow.generation == JobRow.generation, GenerationRow.ended_at.is_(None))


def _with_jobs() -> Select[Any]:
    columns = (
        *(JobRow.id, JobRow.name, JobRow.state, JobRow.desired, JobRow.end_reason, JobRow.pending, JobRow.progress, JobRow.world_size),
        *(JobRow.ran_seconds, GenerationRow.started_at, JobRow.state_since, JobRow.id.in_(still_sending())),
    )
    return (
        select(*_TRIAL, *columns)
        .select_from(TrialRow)
        .outerjoin(JobRow, JobRow.id == TrialRow.job_id)
        .outerjoin(GenerationRow, _OPEN_GENERATION)
    )


async def _read(session: AsyncSession, query: Select[Any]) -> list[TrialWithJob]:
    rows, end = await session.execute(query), len(_TRIAL)
    return [TrialWithJob(TrialColumns(*row[:end]), TrialJobColumns(*row[end:]) if row[end] is not None else None) for row in rows]


async def trials(session: AsyncSession, experiment_id: str, *, also_former: bool = False) -> list[TrialWithJob]:
    """All trials with their jobs, by index; `also_former`: those too that the present grid has no more."""
    query = _with_jobs().where(TrialRow.experiment_id == experiment_id).order_by(TrialRow.index)
    return await _read(session, query if also_former else query.where(TrialRow.in_grid))


async def former_trials(session: AsyncSession, experiment_id: str) -> list[TrialWithJob]:
    """The trials that the present grid has no more, with their jobs."""
    return await _read(session, _with_jobs().where(TrialRow.experiment_id == experiment_id, TrialRow.in_grid.is_(False)))


async def retire(session: AsyncSession, experiment_id: str, indices: Collection[int]) -> None:
    """Take trials out of the experiment's grid. Their rows stay, and may come back."""
    mine = (TrialRow.experiment_id == experiment_id, TrialRow.index.in_(indices))
    await session.execute(update(TrialRow).where(*mine).values(in_grid=False))


async def unended_trials(session: AsyncSession, experiment_id: str) -> list[TrialWithJob]:
    """The trials that have a job which has not ended."""
    mine = (TrialRow.experiment_id == experiment_id, TrialRow.in_grid, JobRow.state.not_in(TERMINAL_JOB_STATES))
    return await _read(session, _with_jobs().where(*mine).order_by(TrialRow.index))


async def trial_page(session: AsyncSession, experiment_id: str, after: int | None, limit: int) -> list[TrialWithJob]:
    query = _with_jobs().where(TrialRow.experiment_id == experiment_id, TrialRow.in_grid).order_by(TrialRow.index).limit(limit)
    return await _read(session, query if after is None else query.where(TrialRow.index > after))


async def trial_rows(session: AsyncSession, experiment_id: str, indices: Collection[int]) -> dict[int, TrialRow]:
    """Trials by index, with their documents, as they are now."""
    query = select(TrialRow).where(TrialRow.experiment_id == experiment_id, TrialRow.index.in_(indices)).options(undefer(TrialRow.document))
    return {row.index: row for row in await session.scalars(query.execution_options(populate_existing=True))}


async def keys(session: AsyncSession, experiment_id: str) -> set[str]:
    """The keys of the trials of the present grid."""
    return set(await session.scalars(select(TrialRow.key).where(TrialRow.experiment_id == experiment_id, TrialRow.in_grid)))


async def next_numbers(session: AsyncSession, experiment_id: str) -> tuple[int, int]:
    """(index, configuration) of the next new trial."""
    query = select(func.max(TrialRow.index), func.max(TrialRow.configuration)).where(TrialRow.experiment_id == experiment_id)
    index, configuration = (await session.execute(query)).one()
    return (-1 if index is None else index) + 1, (-1 if configuration is None else configuration) + 1


async def set_figures(session: AsyncSession, experiment_id: str, found: Mapping[int, TrialFigures]) -> None:
    """Store the figures of trials, by index. A trial that has another job by now is left as it is."""
    for index, read in found.items():
        mine = (TrialRow.experiment_id == experiment_id, TrialRow.index == index, TrialRow.job_id == read.job_id)
        values = {
            "metric": read.metric,
            "samples_per_second": read.samples_per_second,
            "metric_step": read.step,
            "metric_is_final": read.is_final,
        }
        await session.execute(update(TrialRow).where(*mine).values(**values))


async def tallies(session: AsyncSession, experiment_ids: Collection[str]) -> Sequence[TrialTally]:
    alike = (
        TrialRow.experiment_id,
        TrialRow.in_grid,
        TrialRow.refusal.is_not(None),
        TrialRow.pruned,
        TrialRow.cancelled,
        JobRow.state,
        GenerationRow.generation.is_not(None),
        TrialRow.world_size,
    )
    query = (
        select(*alike, func.count(), func.coalesce(func.sum(JobRow.ran_seconds), 0.0))
        .outerjoin(JobRow, JobRow.id == TrialRow.job_id)
        .outerjoin(GenerationRow, _OPEN_GENERATION)
        .where(TrialRow.experiment_id.in_(experiment_ids))
        .group_by(*alike)
    )
    return [TrialTally._make(row) for row in await session.execute(query)]


async def holding_trials(session: AsyncSession, experiment_ids: Collection[str]) -> Sequence[HoldingTrial]:
    is_left = and_(TrialRow.in_grid, TrialRow.refusal.is_(None), TrialRow.pruned.is_(False))
    sizes = (TrialRow.world_size, GenerationRow.world_size)
    query = (
        select(TrialRow.experiment_id, is_left, *sizes, GenerationRow.started_at, JobRow.ran_seconds)
        .join(JobRow, JobRow.id == TrialRow.job_id)
        .join(GenerationRow, _OPEN_GENERATION)
        .where(TrialRow.experiment_id.in_(experiment_ids))
    )
    return [HoldingTrial(*row) for row in await session.execute(query)]


async def resized_spans(session: AsyncSession, experiment_ids: Collection[str]) -> Sequence[ResizedSpan]:
    times = (GenerationRow.started_at, GenerationRow.ended_at)
    query = (
        select(TrialRow.experiment_id, TrialRow.index, TrialRow.world_size, GenerationRow.world_size, *times)
        .join(GenerationRow, GenerationRow.job_id == TrialRow.job_id)
        .where(TrialRow.experiment_id.in_(experiment_ids), GenerationRow.ended_at.is_not(None))
        .where(GenerationRow.world_size != TrialRow.world_size)
    )
    return [ResizedSpan._make(row) for row in await session.execute(query)]


async def trial_of_job(session: AsyncSession, job_id: str) -> JobTrial | None:
    """Return the trial that a job was submitted for, or None for a job of no experiment."""
    query = (
        select(TrialRow.experiment_id, ExperimentRow.name, TrialRow.index)
        .join_from(TrialRow, ExperimentRow)
        .where(TrialRow.job_id == job_id)
    )
    row = (await session.execute(query)).first()
    return JobTrial(*row) if row else None
