"""Records requests for a job and reports about it. The scheduler carries them out, through `gang_lifecycle`."""

from __future__ import annotations

from collections.abc import Mapping
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
from paceline.cluster.states import JOB_TRANSITIONS, EndReason, Intent, JobState, check_transition
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.jobs import JobRow, search_text
from paceline.training.spec.job import JobSpec
from paceline.training.spec.stored import StoredSpec

#: The key in a job's progress for the step to which it was set back, with its newest generation then.
SET_BACK = "set_back"
_KEPT_WHEN_SET_BACK = frozenset({"total_steps", "updated_at"})


async def submit(session: AsyncSession, spec: JobSpec, actor: Actor, now: datetime, restored_from: CheckpointRow | None = None) -> JobRow:
    job = JobRow(
        name=spec.name,
        project=spec.project,
        priority=spec.priority,
        labels=dict(spec.labels),
        state=JobState.QUEUED,
        spec=StoredSpec.of(spec),
        world_size=spec.world_size,
        bundle=spec.environment.code.bundle if spec.environment.code else None,
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


async def want(session: AsyncSession, job: JobRow, desired: Intent, actor: Actor, now: datetime, why: str = "") -> None:
    """Record what the user, or the job's experiment, wants; the scheduler makes it so."""
    await compare_and_set(session, job, desired=desired)
    cause = why or f"{actor.name} asked for it"
    await record_event(session, job, "job.intent", actor, cause, f"{desired.value} was asked for", now)
    nudge_after_commit(session, bus.SCHEDULER)


async def resize(session: AsyncSession, job: JobRow, world_size: int, actor: Actor, now: datetime) -> None:
    """Record how many ranks the job is to have; the scheduler makes it so."""
    before = job.world_size
    await compare_and_set(session, job, world_size=world_size)
    message = f"{world_size} rank{'' if world_size == 1 else 's'} asked for instead of {before}"
    data = {"ranks_before": before, "ranks_after": world_size}
    await record_event(session, job, "job.resize", actor, f"{actor.name} asked for it", message, now, data)
    nudge_after_commit(session, bus.SCHEDULER)


async def edit(session: AsyncSession, job: JobRow, changes: Mapping[str, Any], actor: Actor, now: datetime) -> None:
    """Change name, project, priority, labels or notes of a job: in its row, and in the spec that a copy of it begins with. A new priority
    counts from the scheduler's next pass."""
    before = {name: getattr(job, name) for name in changes}
    spec = StoredSpec({**job.spec.document, **{name: value for name, value in changes.items() if name != "notes"}})
    after = {"name": job.name, "labels": job.labels, "notes": job.notes, **changes}
    text = search_text(after["name"], spec, after["labels"], after["notes"])
    await compare_and_set(session, job, spec=spec, search_text=text, **changes)
    shown = {name: {"from": before[name], "to": value} for name, value in changes.items() if name != "notes"}
    message = ", ".join(_told_change(name, before[name], value) for name, value in changes.items())
    await record_event(session, job, "job.edited", actor, f"{actor.name} asked for it", message, now, {"changes": shown})
    nudge_after_commit(session, bus.SCHEDULER)


def _told_change(name: str, before: Any, after: Any) -> str:
    if name == "notes":
        return "notes changed"
    if name != "labels":
        return f"{name} {before} -> {after}"
    given = [f"label {key}={value}" for key, value in after.items() if before.get(key) != value]
    return ", ".join([*given, *(f"label {key} removed" for key in before if key not in after)])


async def set_archived(session: AsyncSession, job: JobRow, since: datetime | None, actor: Actor, now: datetime) -> None:
    """Put an ended job out of sight, or with None back into lists."""
    await compare_and_set(session, job, archived_at=since)
    verb = "unarchived" if since is None else "archived"
    await record_event(session, job, f"job.{verb}", actor, f"{actor.name} asked for it", f"job {job.name} was {verb}", now)


async def set_back(session: AsyncSession, job: JobRow, to: CheckpointRow, spec: JobSpec | None, actor: Actor, now: datetime) -> None:
    """Queue a paused or ended job again, which then continues from its checkpoint `to`. It is a new try: restarts are counted anew.
    `spec` replaces the stored one."""
    check_transition(JOB_TRANSITIONS, job.state, JobState.QUEUED)
    before, kept = job.state, {name: value for name, value in (job.progress or {}).items() if name in _KEPT_WHEN_SET_BACK}
    values: dict[str, Any] = {"spec": StoredSpec(spec.model_dump(mode="json"))} if spec else {}
    if spec is not None and spec.training is not None:
        kept["total_steps"] = spec.training.steps
    await compare_and_set(
        session,
        job,
        state=JobState.QUEUED,
        desired=Intent.RUN,
        end_reason=None,
        failure=None,
        pending=None,
        restarts=0,
        ended_at=None,
        archived_at=None,
        queued_at=now,
        state_since=now,
        progress={**kept, "step": to.step, "last_checkpoint_step": to.step, SET_BACK: {"step": to.step, "generation": job.generation}},
        **values,
    )
    data = {"from": before.value, "to": JobState.QUEUED.value, "reason": None, "step": to.step, "checkpoint_id": to.id}
    message = f"{before.value} -> queued: set back to the checkpoint of step {to.step}"
    await record_event(session, job, "job.set_back", actor, f"{actor.name} asked for it", message, now, data)
    nudge_after_commit(session, bus.SCHEDULER)


def step_set_back_to(progress: Mapping[str, Any] | None, generation: int) -> int | None:
    """The step to which a job was set back after this generation, by its `progress`; None: it has not been."""
    told = (progress or {}).get(SET_BACK)
    return int(told["step"]) if told and generation <= told["generation"] else None


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
