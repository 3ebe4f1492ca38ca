"""Jobs as clients see them: a row of the list, and all that a job's page shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.schemas.common import Reason
from paceline.api.schemas.jobs import Failure, Generation, Job, JobExperiment, JobProgress, JobSummary, Rank
from paceline.api.schemas.plan_choice import PlanChoice
from paceline.api.schemas.storage import DataRemoval
from paceline.api.services.ingest import bad_losses
from paceline.api.services.ingest.communication import COMMUNICATION
from paceline.api.services.ingest.progress import not_finite_step
from paceline.api.services.jobs import notices
from paceline.api.services.jobs.notices import Notices
from paceline.api.services.lifecycle import job_lifecycle
from paceline.api.services.planning import plan_auto
from paceline.api.services.specs.job_words import CURVES_PRINTED, model_of, places_in_mesh, strategy_of
from paceline.api.services.specs.script_stops import BAD_LOSS
from paceline.api.services.specs.stored_specs import readable_spec_of, saves_when_ended, why_unreadable
from paceline.api.services.storage import removals
from paceline.cluster.states import TERMINAL_JOB_STATES, JobState, RankState
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.repositories import events as event_rows
from paceline.db.repositories import experiments as experiment_rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec

#: A job is shown with so many of its newest generations: one that has recovered for weeks has tens of thousands.
MOST_GENERATIONS = 100
#: The model and strategy that are told of a job whose spec cannot be read.
UNKNOWN = "unknown"
#: In the stored progress, beside what rank 0 has reported last.
NOT_TOLD = ("not_finite", BAD_LOSS, COMMUNICATION, job_lifecycle.SET_BACK)


def progress_of(job: JobRow) -> JobProgress:
    """How far the job is. A completed one has done all its steps, though the metrics of the last ones may still be on their way here, and
    of a short one all may have come before its ranks announced their number. A script may end before the number of steps it announced, so
    its last report stands."""
    told = {name: value for name, value in (job.progress or {}).items() if name not in NOT_TOLD}
    if job.state is JobState.COMPLETED and not job.spec.is_script:
        total = told.get("total_steps") or job.spec.part("training", "steps")
        told |= {} if total is None else {"step": total, "total_steps": total, "eta_seconds": 0.0}
    not_finite = not_finite_step(job.progress, job.generation)
    return JobProgress.model_validate(told | {"not_finite_step": not_finite, "bad_loss": bad_losses.shown(job)})


def summarize(job: JobRow, told: Notices) -> JobSummary:
    spec = readable_spec_of(job)
    return JobSummary(
        id=job.id,
        name=job.name,
        project=job.project,
        priority=job.priority,
        labels=job.labels,
        state=job.state,
        desired=job.desired,
        end_reason=job.end_reason,
        pending=Reason.model_validate({**job.pending, "no_launch": told.no_launch}) if job.pending else None,
        progress=progress_of(job),
        world_size=job.world_size,
        last_world_size=told.ended_with,
        generation=job.generation,
        restarts=job.restarts,
        strategy=strategy_of(spec, told.ended_with or job.world_size) if spec else UNKNOWN,
        model=model_of(spec) if spec else UNKNOWN,
        unreadable=why_unreadable(job),
        hang=told.hang,
        silent_nodes=list(told.silent_nodes),
        can_pause=job.state is JobState.QUEUED or saves_when_ended(job),
        can_resize=spec is not None and derived.can_resize(spec),
        created_by=job.created_by,
        created_by_id=job.created_by_id,
        created_at=job.created_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        ran_seconds=told.ran_seconds,
        archived_at=job.archived_at,
    )


@dataclass(frozen=True)
class JobFacts:
    """Facts that are told of a job beside its own row. The defaults are those of a job that its user has submitted this moment."""

    as_of_seq: int  # read first: an event between it and the rest is seen twice rather than never
    notices: Notices = field(default_factory=Notices)
    ranks: Sequence[RankRow] = ()
    node_names: Mapping[str, str] = field(default_factory=dict)
    generations: Sequence[GenerationRow] = ()
    experiment: JobExperiment | None = None
    choice: PlanChoice | None = None
    data_removal: DataRemoval | None = None
    printed_curves: bool = False


async def describe(session: AsyncSession, job: JobRow, now: datetime) -> Job:
    """A job as clients see it."""
    as_of_seq = await event_rows.newest_seq(session)
    ranks, generations = ([], []) if job.generation == 0 else await _gang_of(session, job)
    facts = JobFacts(
        as_of_seq,
        (await notices.of_jobs(session, [job], now))[job.id],
        ranks,
        await node_rows.named(session, {rank.node_id for rank in ranks}),
        generations,
        await _experiment_of(session, job),
        await plan_auto.choice_of(session, job.id),
        await removals.of_job(session, job.id) if job.state in TERMINAL_JOB_STATES else None,
        await _has_printed_curves(session, job),
    )
    return _described(job, facts, now)


async def describe_new(session: AsyncSession, job: JobRow, choice: PlanChoice | None, now: datetime) -> Job:
    """A job as its user sees it who has submitted it in this transaction; `choice`: how its strategy was chosen. Nothing else is known of it."""
    return _described(job, JobFacts(await event_rows.newest_seq(session), choice=choice), now)


def _described(job: JobRow, facts: JobFacts, now: datetime) -> Job:
    generations = [describe_generation(row, job.spec.is_script) for row in facts.generations]
    spec = readable_spec_of(job)
    size = generations[-1].world_size if generations else job.world_size
    places = dict(enumerate(places_in_mesh(spec, size))) if spec and facts.ranks else {}
    summary = summarize(job, facts.notices)
    return Job(
        **summary.model_dump(),
        notes=job.notes,
        spec=spec,
        stored_spec=None if spec else job.spec.document,
        revision=job.version,
        failure=_failure_of(job),
        restored_from=job.restored_from,
        experiment=facts.experiment,
        choice=facts.choice,
        communication=(job.progress or {}).get(COMMUNICATION),
        **_time_left(summary, spec, facts.generations[-1] if facts.generations else None, now),
        actual_world_size=next((each.world_size for each in generations[-1:] if each.ended_at is None), None),
        ranks=[describe_rank(rank, facts.node_names[rank.node_id], places.get(rank.rank, {}), now) for rank in facts.ranks],
        generations=generations,
        data_removal=facts.data_removal,
        printed_curves=facts.printed_curves,
        as_of_seq=facts.as_of_seq,
    )


async def _experiment_of(session: AsyncSession, job: JobRow) -> JobExperiment | None:
    found = await experiment_rows.trial_of_job(session, job.id)
    return JobExperiment(id=found.experiment_id, name=found.experiment_name, trial=found.trial) if found else None


def _time_left(job: JobSummary, spec: JobSpec | None, newest: GenerationRow | None, now: datetime) -> dict[str, Any]:
    """What the time for which the job has held slots leaves of its time limit."""
    limit = spec.time_limit if spec else None
    told = {"time_limit_seconds": limit}
    if limit is None or job.state in TERMINAL_JOB_STATES:
        return told
    under_way = newest is not None and newest.ended_at is None
    left = max(0.0, limit - job.ran_seconds)
    return told | {"time_left_seconds": left, "time_limit_at": now + timedelta(seconds=left) if under_way else None}


async def _has_printed_curves(session: AsyncSession, job: JobRow) -> bool:
    return job.spec.is_script and await event_rows.has_any(session, job.id, CURVES_PRINTED)


async def _gang_of(session: AsyncSession, job: JobRow) -> tuple[Sequence[RankRow], Sequence[GenerationRow]]:
    """The ranks of the newest generation, and the newest generations."""
    newest = (job.id, job.generation)
    ranks = (await job_rows.ranks(session, [newest]))[newest]
    return ranks, await job_rows.newest_generations(session, job.id, MOST_GENERATIONS)


def _failure_of(job: JobRow) -> Failure | None:
    """The failure as stored; an unreadable one is shown as such, and the job all the same."""
    if not job.failure:
        return None
    try:
        return Failure.model_validate(job.failure)
    except ValidationError as error:
        said = f"the stored failure cannot be read: {error.error_count()} wrong field(s)"
        return Failure(kind="exit", rank=0, node_name="", generation=job.generation, message=said)


def describe_rank(rank: RankRow, node_name: str, place: dict[str, int], now: datetime) -> Rank:
    return Rank(
        rank=rank.rank,
        generation=rank.generation,
        node_id=rank.node_id,
        node_name=node_name,
        slot=rank.slot,
        card=rank.card,
        parked=rank.parked,
        place=place,
        state=rank.state,
        pid=rank.pid,
        step=rank.step,
        heartbeat_age_seconds=_heartbeat_age(rank, now),
        exit_code=rank.exit_code,
        signal=rank.signal,
    )


def _heartbeat_age(rank: RankRow, now: datetime) -> float | None:
    if rank.progress_at is None or rank.state is RankState.EXITED:
        return None
    return max(0.0, (now - rank.progress_at).total_seconds())


def describe_generation(row: GenerationRow, is_script: bool) -> Generation:
    return Generation(
        generation=row.generation,
        world_size=row.world_size,
        started_at=row.started_at,
        first_step_at=row.first_step_at,
        ended_at=row.ended_at,
        end_reason=row.end_reason,
        at_boundary=row.at_boundary,
        start_step=(row.start_step or None) if is_script else row.start_step,
        restored_checkpoint_id=row.restored_checkpoint_id,
    )
