"""A trial run longer: a job that goes on from its newest checkpoint."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError
from paceline.api.schemas.checkpoints import RestoreRequest
from paceline.api.schemas.common import Actor
from paceline.api.schemas.experiments import ExtendRequest
from paceline.api.services.checkpoints import checkpoints
from paceline.api.services.jobs import submission
from paceline.cluster.policy.retention import verified
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.experiments import ExperimentRow
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import checkpoints as checkpoint_rows
from paceline.db.repositories import experiments as rows
from paceline.db.repositories import jobs as job_rows

#: The longest name of a job.
LONGEST_NAME = 63
ENDING = "-longer"


async def extend(session: AsyncSession, row: ExperimentRow, request: ExtendRequest, actor: Actor, now: datetime) -> JobRow:
    """Submit the job. It is no trial: the experiment stays as it is. Raises ProblemError where there is nothing to go on from."""
    job = await _job_of(session, row, request.trial)
    checkpoint = await _newest(session, row, job)
    name = request.name or job.name[: LONGEST_NAME - len(ENDING)] + ENDING
    spec = await checkpoints.restored_spec(session, checkpoint, RestoreRequest(name=name, steps=request.steps))
    return await submission.continue_from(session, checkpoint, spec, actor, now)


async def _job_of(session: AsyncSession, row: ExperimentRow, asked: int | None) -> JobRow:
    index = row.best_trial if asked is None else asked
    if index is None:
        raise ProblemError(
            "checkpoint_not_usable", f"no trial of experiment {row.name} is the best one yet: none has a metric; name one with trial"
        )
    trial = (await rows.trial_rows(session, row.id, [index])).get(index)
    if trial is None:
        raise ProblemError("invalid_parameter", f"experiment {row.name} has no trial {index}")
    job = await job_rows.get(session, trial.job_id) if trial.job_id is not None else None
    if job is None:
        raise ProblemError(
            "checkpoint_not_usable", f"trial {index} of experiment {row.name} has not run, so there is nothing to go on from"
        )
    return job


async def _newest(session: AsyncSession, row: ExperimentRow, job: JobRow) -> CheckpointRow:
    present = await checkpoint_rows.present_of_job(session, job.id)
    usable = verified(await checkpoints.views_of(session, present))
    if not usable:
        raise ProblemError(
            "checkpoint_not_usable",
            f"job {job.name} of experiment {row.name} has no checkpoint to go on from: submit its spec anew with more training.steps, and set "
            "job.checkpoint in the experiment for next time",
        )
    return next(each for each in present if each.id == usable[0].id)
