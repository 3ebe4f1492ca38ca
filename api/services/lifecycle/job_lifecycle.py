"""Records requests for a job and reports about it. The scheduler carries them out, through `gang_lifecycle`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import nudge_after_commit
from paceline.api.core.identity import SYSTEM
from paceline.api.schemas.common import Actor
from paceline.api.services.lifecycle import events
from paceline.api.services.lifecycle.state_change import compare_and_set
from paceline.cluster.policy.placement import PlacementReason
from paceline.cluster.states import EndReason, Intent, JobState
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.jobs import JobRow
from paceline.training.spec.job import JobSpec
from paceline.training.spec.stored import StoredSpec


async def submit(session: AsyncSession, spec: JobSpec, actor: Actor, now: datetime, restored_from: CheckpointRow | None = None) -> JobRow:
    job = JobRow(
        name=spec.name,
        project=spec.project,
        priority=spec.priority,
        labels=dict(spec.labels),
        state=JobState.QUEUED,
        spec=StoredSpec(spec.model_dump(mode="json")),
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
    await record_event(session, job, "job.submitted", actor, cause, f"job {job.name} was submitted", now)
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


async def set_micro_batch(session: AsyncSession, job: JobRow, size: int) -> None:
    """Store the micro-batch size that the job's ranks have found in its spec."""
    document = job.spec.document
    found = {**document, "training": {**document["training"], "micro_batch_size": size}}
    await compare_and_set(session, job, spec=StoredSpec(found))


async def set_pending(session: AsyncSession, job: JobRow, reason: PlacementReason | None, now: datetime) -> None:
    """Store why the job waits, or is smaller than it should be; the history only notes when the kind of reason changes."""
    before = (job.pending or {}).get("code")
    job.pending = asdict(reason) if reason is not None else None
    await session.flush()
    if reason is not None and before != reason.code:
        await record_event(session, job, "job.pending", SYSTEM, reason.code, reason.text, now)


async def correct_failure(session: AsyncSession, job: JobRow, generation: int, failure: dict[str, Any], reason: EndReason | None) -> None:
    """Store the culprit that reported after its victims: for as long as the job shows the failure of that generation."""
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
