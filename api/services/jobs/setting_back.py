"""Sets a job back to one of its checkpoints, in place: the job is queued again and continues from there.

Its newer checkpoints are superseded: they stay as long as retention keeps such ones, and the job can be set back to them in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError
from paceline.api.schemas.checkpoints import RestoreRequest
from paceline.api.schemas.common import Actor
from paceline.api.services.checkpoints import checkpoints
from paceline.api.services.jobs import jobs, revisions, secrets
from paceline.api.services.lifecycle import checkpoint_lifecycle, job_lifecycle
from paceline.api.services.storage import removals
from paceline.cluster.states import TERMINAL_JOB_STATES, CheckpointState, JobState
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import checkpoints as checkpoint_rows
from paceline.training.schema.amounts import written_time
from paceline.training.spec.job import JobSpec


async def set_back(
    session: AsyncSession, checkpoint_id: str, request: RestoreRequest, if_match: str | None, actor: Actor, now: datetime
) -> JobRow:
    """Set the checkpoint's job back to it. Raises a problem where the job is at work or cannot run any more, or the checkpoint is of no
    use."""
    row = await checkpoints.find(session, checkpoint_id)
    job = await jobs.find(session, row.job_id, lock=True)
    revisions.check(job, if_match)
    if request.name is not None:
        raise ProblemError("cannot_set_back", f"name={request.name!r} is of a new job; leave out name, or in_place")
    _refuse_at_work(job)
    await _refuse_removed(session, job)
    row = await checkpoints.find(session, checkpoint_id, lock=True)
    spec = await checkpoints.restored_spec(session, row, request.model_copy(update={"name": job.name}))
    _refuse_out_of_time(job, spec)
    await secrets.require(session, spec)
    await _supersede_newer(session, job, row, actor, now)
    await job_lifecycle.set_back(session, job, row, spec if request.steps is not None else None, actor, now)
    return job


def _refuse_at_work(job: JobRow) -> None:
    if job.state is not JobState.PAUSED and job.state not in TERMINAL_JOB_STATES:
        raise ProblemError(
            "cannot_set_back",
            f"job {job.name} is {job.state.value}; a job is set back while it is paused or has ended: pause it first, or leave out in_place"
            " to start a new job",
        )


async def _refuse_removed(session: AsyncSession, job: JobRow) -> None:
    """Refuse a job whose records are deleted for good: those of its next steps would be deleted, too."""
    if await removals.of_job(session, job.id) is not None:
        raise ProblemError(
            "cannot_set_back", f"what job {job.name} recorded was deleted on request; leave out in_place to continue as a new job"
        )


def _refuse_out_of_time(job: JobRow, spec: JobSpec) -> None:
    if spec.time_limit is not None and job.ran_seconds >= spec.time_limit:
        raise ProblemError(
            "cannot_set_back",
            f"job {job.name} has used up its time_limit of {written_time(spec.time_limit)}; leave out in_place: a new job has all of it again",
        )


async def _supersede_newer(session: AsyncSession, job: JobRow, chosen: CheckpointRow, actor: Actor, now: datetime) -> None:
    """Make the chosen checkpoint the newest of its job that can be restored."""
    why = f"job {job.name} was set back to step {chosen.step}"
    for each in newer_than(chosen, await checkpoint_rows.present_of_job(session, job.id)):
        await checkpoint_lifecycle.move(session, each, CheckpointState.SUPERSEDED, actor, why, now)
    if chosen.state is CheckpointState.SUPERSEDED:
        await checkpoint_lifecycle.move(session, chosen, CheckpointState.COMMITTED, actor, why, now)


def newer_than(chosen: CheckpointRow, present: Sequence[CheckpointRow]) -> list[CheckpointRow]:
    """The committed checkpoints that would be restored before `chosen`: of later steps, or of its step and a later generation."""
    mark = (chosen.step, chosen.generation)
    return [each for each in present if each.state is CheckpointState.COMMITTED and (each.step, each.generation) > mark]
