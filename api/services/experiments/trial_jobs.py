"""Makes, pauses, resumes and cancels the jobs of an experiment's trials: the job and its trial's row in one transaction, whose caller has locked
the experiment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.errors import ProblemError
from paceline.api.schemas.common import Actor
from paceline.api.services.jobs import jobs, packages, submission
from paceline.api.services.planning import plan_auto
from paceline.api.services.planning.plan_auto import ResolvedSpec
from paceline.api.services.planning.plan_machines import NotYetKnownError
from paceline.cluster.experiments.schedule import TrialAction
from paceline.cluster.states import TERMINAL_JOB_STATES, Intent
from paceline.db.models.experiments import ExperimentRow, TrialRow
from paceline.db.repositories import jobs as job_rows
from paceline.training.spec.job import JobSpec

#: Problems that pass by themselves: the trial is tried again.
PASSING = frozenset({"busy"})

#: By index of a trial: the job spec that was asked for and the one with a chosen plan, or why there is none.
Chosen = Mapping[int, tuple[JobSpec, ResolvedSpec] | str]


def owner_of(row: ExperimentRow) -> Actor:
    """The user whose experiment it is: its jobs are submitted in their name."""
    if row.created_by_id is None:
        return actor_of(row)
    return Actor(kind="user", id=row.created_by_id, name=row.created_by)


def actor_of(row: ExperimentRow) -> Actor:
    """The experiment itself, as the history of its jobs names it."""
    return Actor(kind="system", id=row.id, name=f"experiment {row.name}")


async def resolved(services: Services, trials: Mapping[int, TrialRow]) -> Chosen:
    """Choose the plans of trials that are to start; those that are to be tried again later are left out. Holds no session: choosing takes a while."""
    found: dict[int, tuple[JobSpec, ResolvedSpec] | str] = {}
    for index, trial in trials.items():
        try:
            spec = await packages.with_files_read(services, JobSpec.model_validate(trial.document))
            found[index] = spec, await plan_auto.resolve(services, spec)
        except ProblemError as error:
            if error.code in PASSING or isinstance(error, NotYetKnownError):
                continue
            found[index] = error.detail
    return found


async def start(
    session: AsyncSession, row: ExperimentRow, trial: TrialRow, chosen: tuple[JobSpec, ResolvedSpec] | str, now: datetime
) -> None:
    """Submit the trial's job. What a submission would refuse becomes the trial's refusal. Raises ClusterChangedError."""
    if trial.job_id is not None:
        return
    if isinstance(chosen, str):
        trial.refusal = chosen
        return
    asked, plan = chosen
    try:
        job = await submission.store(session, asked, plan, owner_of(row), now)
    except ProblemError as error:
        trial.refusal = error.detail
        return
    trial.job_id = job.id


async def carry_out(
    session: AsyncSession, row: ExperimentRow, trial: TrialRow, action: TrialAction, paused_for: str, now: datetime
) -> None:
    """Ask the trial's job for what was decided. A job that has moved on meanwhile is left alone: the next look decides anew."""
    if action.kind == "prune":
        trial.pruned = True
    if action.kind == "refuse":
        trial.refusal = action.why
    if trial.job_id is None:
        trial.cancelled = trial.cancelled or action.kind == "cancel"
        return
    job = await job_rows.get_locked(session, trial.job_id)
    if job is None or job.state in TERMINAL_JOB_STATES or job.desired is Intent.CANCEL:
        return
    try:
        if action.kind == "pause":
            await jobs.pause(session, job, None, actor_of(row), now, action.why)
            trial.paused_for = paused_for
        elif action.kind == "resume":
            await jobs.resume(session, job, None, actor_of(row), now, action.why)
            trial.paused_for = None
        else:
            await jobs.cancel(session, job, None, actor_of(row), now, action.why)
    except ProblemError as error:
        if error.status != 409:  # a conflict with what the job is by now
            raise
