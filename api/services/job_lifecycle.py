"""What is asked of a job and what is told about it. The scheduler makes it so, through `gang_lifecycle`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from api.deps import nudge_after_commit
from api.schemas.common import Actor
from api.services import bus, events
from api.services.identity import SYSTEM
from api.services.state_change import compare_and_set
from cluster.placement import Reason
from cluster.states import EndReason, Intent, JobState
from db.models.checkpoints import CheckpointRow
from db.models.jobs import JobRow
from training.spec.job import JobSpec


async def submit(session: AsyncSession, spec: JobSpec, actor: Actor, now: datetime, restored_from: CheckpointRow | None = None) -> JobRow:
    job = JobRow(
        name=spec.name,
        project=spec.project,
        priority=spec.priority,
        labels=dict(spec.labels),
        state=JobState.QUEUED,
        spec=spec.model_dump(mode="json"),
        world_size=spec.world_size,
        restored_from=restored_from.id if restored_from else None,
        created_by=actor.name,
        created_by_id=actor.id if actor.kind == "user" else None,
        created_at=now,
        queued_at=now,
        state_since=now,
    )
    session.add(job)
    await session.flush()
    cause = f"restored from step {restored_from.step} of job {restored_from.job_id}" if restored_from else "submitted"
    await record_event(session, job, "job.submitted", actor, cause, f"{job.name} was submitted", now)
    nudge_after_commit(session, bus.SCHEDULER)
    return job


async def want(session: AsyncSession, job: JobRow, desired: Intent, actor: Actor, now: datetime) -> None:
    """Record what the user wants; the scheduler makes it so."""
    await compare_and_set(session, job, desired=desired)
    await record_event(session, job, "job.intent", actor, f"{actor.name} asked for it", f"{desired.value} was asked for", now)
    nudge_after_commit(session, bus.SCHEDULER)


async def resize(session: AsyncSession, job: JobRow, world_size: int, actor: Actor, now: datetime) -> None:
    """Record how many ranks the job is to have; the scheduler makes it so."""
    before = job.world_size
    await compare_and_set(session, job, world_size=world_size)
    message = f"{world_size} rank{'' if world_size == 1 else 's'} asked for instead of {before}"
    data = {"ranks_before": before, "ranks_after": world_size}
    await record_event(session, job, "job.resize", actor, f"{actor.name} asked for it", message, now, data)
    nudge_after_commit(session, bus.SCHEDULER)


async def settle_micro_batch(session: AsyncSession, job: JobRow, size: int) -> None:
    """What its ranks have found stands in the spec from now on."""
    await compare_and_set(session, job, spec={**job.spec, "training": {**job.spec["training"], "micro_batch_size": size}})


async def set_pending(session: AsyncSession, job: JobRow, reason: Reason | None, now: datetime) -> None:
    """Say why the job waits, or is smaller than it should be; the history only notes when the kind of reason changes."""
    before = (job.pending or {}).get("code")
    job.pending = asdict(reason) if reason is not None else None
    await session.flush()
    if reason is not None and before != reason.code:
        await record_event(session, job, "job.pending", SYSTEM, reason.code, reason.text, now)


async def correct_failure(session: AsyncSession, job: JobRow, generation: int, failure: dict[str, Any], reason: EndReason | None) -> None:
    """The culprit was heard of after its victims: for as long as the job shows the failure of that generation."""
    if isinstance(job.failure, dict) and job.failure.get("generation") == generation and job.failure != failure:
        await compare_and_set(session, job, failure=failure, end_reason=reason if job.end_reason else None)


async def record_event(
    session: AsyncSession, job: JobRow, type: str, actor: Actor, cause: str, message: str, now: datetime, data: dict[str, Any] | None = None
) -> None:
    facts = {"state": job.state.value, "desired": job.desired.value, **(data or {})}
    await events.record(
        session,
        type=type,
        actor=actor,
        cause=cause,
        message=message,
        job_id=job.id,
        generation=job.generation or None,
        data=facts,
        time=now,
    )
