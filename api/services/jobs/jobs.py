"""Finds jobs, and does with them what clients may ask: pause, resume, cancel, resize. `descriptions.py` has jobs as clients see them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.common import Actor
from paceline.api.schemas.jobs import Resize
from paceline.api.services.jobs import revisions
from paceline.api.services.lifecycle import job_lifecycle
from paceline.api.services.planning import plan_auto
from paceline.api.services.specs.stored_specs import required_spec_of, saves_when_ended
from paceline.cluster.policy.decisions import BACK_TO_QUEUE
from paceline.cluster.states import TERMINAL_JOB_STATES, EndReason, Intent, JobState
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import jobs as job_rows
from paceline.training.spec import derived
from paceline.training.spec.conflicts import too_few_micro_batches
from paceline.training.spec.job import JobSpec
from paceline.training.spec.workload import ScriptWorkload


async def find(session: AsyncSession, job_id: str, *, lock: bool = False) -> JobRow:
    job = await (job_rows.get_locked if lock else job_rows.get)(session, job_id)
    if job is None:
        raise not_found("job", job_id)
    return job


async def ended_before(session: AsyncSession, job_ids: Sequence[str], before: datetime) -> tuple[str, ...]:
    """Return those of these jobs that ended by then, and those that are not known any more."""
    others = await job_rows.not_ended_before(session, job_ids, before)
    return tuple(job_id for job_id in job_ids if job_id not in others)


async def pause(session: AsyncSession, job: JobRow, if_match: str | None, actor: Actor, now: datetime, why: str = "") -> None:
    _refuse_finished(job, "paused")
    revisions.check(job, if_match)
    _refuse_cancelled(job)
    if job.desired is Intent.PAUSE:
        raise ProblemError("job_already_paused", f"job {job.name} is {_paused_word(job)} already; resume it with PUT .../resume")
    if job.state is not JobState.QUEUED and not saves_when_ended(job):  # in the queue nothing can be lost
        way_out = "let it save at SIGTERM and submit it with script.saves_on_sigterm=true, or cancel it"
        raise ProblemError("cannot_pause", f"job {job.name} runs a script that does not say that it saves when it is ended; {way_out}")
    if job.state is JobState.STOPPING and job.end_reason not in (EndReason.PAUSED, *BACK_TO_QUEUE):
        raise ProblemError("job_not_running", f"job {job.name} is stopping already ({_why(job)})")
    await job_lifecycle.want(session, job, Intent.PAUSE, actor, now, why)


async def resume(session: AsyncSession, job: JobRow, if_match: str | None, actor: Actor, now: datetime, why: str = "") -> None:
    _refuse_finished(job, "resumed")
    revisions.check(job, if_match)
    _refuse_cancelled(job)
    if job.desired is not Intent.PAUSE:
        raise ProblemError("job_not_paused", f"job {job.name} is {job.state.value}, not paused; there is nothing to resume")
    await job_lifecycle.want(session, job, Intent.RUN, actor, now, why)


async def cancel(session: AsyncSession, job: JobRow, if_match: str | None, actor: Actor, now: datetime, why: str = "") -> None:
    """Cancel a job. Asking again while it is being cancelled is harmless."""
    _refuse_finished(job, "cancelled")
    revisions.check(job, if_match)
    if job.desired is not Intent.CANCEL:
        await job_lifecycle.want(session, job, Intent.CANCEL, actor, now, why)


async def resize(session: AsyncSession, job: JobRow, size: Resize, if_match: str | None, actor: Actor, now: datetime) -> None:
    """Resize a job. One that closes up changes its size while it runs; another one stops with a checkpoint and waits for the new slots.
    One that is queued or paused has the size when it is placed next."""
    _refuse_finished(job, "resized")
    revisions.check(job, if_match)
    _refuse_cancelled(job)
    spec = required_spec_of(job)
    blocks = _blocks_of(job, spec, size)
    _refuse_size(job, spec, blocks)
    world_size = blocks * spec.resources.slots_per_block
    if too_large := await plan_auto.too_large_at(session, job.id, spec, world_size):
        raise ProblemError("cannot_resize", f"{spec.resources.unit}={blocks}: {too_large}")
    if world_size != job.world_size:
        await job_lifecycle.resize(session, job, world_size, actor, now)


def _blocks_of(job: JobRow, spec: JobSpec, size: Resize) -> int:
    """The size in the unit of the job's spec. Slots are accepted for any job, as far as they come to whole nodes."""
    resources = spec.resources
    if size.slots is None:
        assert size.nodes is not None
        if resources.unit == "slots":
            raise ProblemError("cannot_resize", f"nodes={size.nodes}: job {job.name} asks for slots={resources.slots}; give slots")
        return size.nodes
    blocks, rest = divmod(size.slots, resources.slots_per_block)
    if rest:
        per_node = resources.slots_per_node
        nearest = " or ".join(str(count * per_node) for count in (blocks, blocks + 1) if count)
        raise ProblemError(
            "cannot_resize", f"slots={size.slots} is no multiple of resources.slots_per_node={per_node} of job {job.name}; use {nearest}"
        )
    return blocks


def _refuse_size(job: JobRow, spec: JobSpec, blocks: int) -> None:
    """Raise a problem where the job cannot have so many of what its spec counts in."""
    resources, unit = spec.resources, spec.resources.unit
    asked, ranks = f"{unit}={blocks}", blocks * resources.slots_per_block
    least, most = resources.min_blocks or 1, resources.max_blocks
    if isinstance(spec.workload, ScriptWorkload):
        if not resources.is_elastic:
            way_out = f"submit it with resources.min_{unit} and max_{unit}"
            raise ProblemError("cannot_resize", f"{asked}: job {job.name} runs a script that has one size only; {way_out}")
        least, most = resources.min_blocks or resources.blocks, most or resources.blocks
    if spec.parallelism.strategy == "single" and blocks != 1:
        raise ProblemError(
            "cannot_resize", f"{asked}: job {job.name} has strategy single, which is one process; submit it with strategy ddp"
        )
    if misfit := spec.parallelism.misfit(ranks):
        raise ProblemError("cannot_resize", f"{asked}: {misfit}")
    if blocks < least:
        raise ProblemError("cannot_resize", f"{asked} is less than resources.min_{unit}={least} of job {job.name}; use {least} or more")
    if most is not None and blocks > most:
        raise ProblemError("cannot_resize", f"{asked} is more than resources.max_{unit}={most} of job {job.name}; use {most} or fewer")
    if short := too_few_micro_batches(spec, ranks):
        fitting = derived.micro_batches(spec) // resources.slots_per_block
        raise ProblemError("cannot_resize", f"{asked}: {short}; use {fitting} or fewer")


def _refuse_finished(job: JobRow, participle: str) -> None:
    if job.state in TERMINAL_JOB_STATES:
        ended = f" at {job.ended_at:%Y-%m-%d %H:%M:%S} UTC" if job.ended_at else ""
        reason = f" ({job.end_reason.value})" if job.end_reason and job.end_reason.value != job.state.value else ""
        verb = "was cancelled" if job.state is JobState.CANCELLED else job.state.value
        raise ProblemError("job_finished", f"{job.name} can't be {participle}: it {verb}{ended}{reason}")


def _refuse_cancelled(job: JobRow) -> None:
    if job.desired is Intent.CANCEL:
        raise ProblemError("job_being_cancelled", f"job {job.name} is being cancelled; submit it again, or restore one of its checkpoints")


def _paused_word(job: JobRow) -> str:
    return "paused" if job.state is JobState.PAUSED else "being paused"


def _why(job: JobRow) -> str:
    return job.end_reason.value if job.end_reason else "no reason recorded"
