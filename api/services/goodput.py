"""A job's goodput: its history, generations, incidents and step records, brought to `cluster.goodput`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from api.schemas.goodput import Goodput, IncidentPart, TimePart
from api.schemas.jobs import Failure
from api.services import incident_views, steps
from api.services.incident_views import Story, what_happened
from api.services.steps import STEP_SECONDS, StepRecord
from api.services.stored_specs import stored_part
from cluster.goodput import WORDS, Account, Cause, Facts, Fault, Membership, Stay, Stretch, account
from cluster.states import EndReason, JobState
from cluster.storage import finest_curves_from, has_points_from
from db.models.events import EventRow
from db.models.jobs import GenerationRow, JobRow
from db.repositories import checkpoints as checkpoint_rows
from db.repositories import events as event_rows
from db.repositories import jobs as job_rows
from db.repositories import step_records, storage
from db.repositories.metric_columns import StoredBucket
from monitoring.rollup import level_for

#: Up to this many steps are read one by one; beyond, from roll-ups of at most MAX_BUCKETS.
MAX_RECORDS = 5_000
MAX_BUCKETS = 2_000
PLACED = "job.placed"


async def of_job(control: AsyncSession, points: AsyncSession, job: JobRow, now: datetime) -> Goodput:
    if job.started_at is None:
        return _not_started(job, now)
    found = await incident_views.stories(control, points, job, now)
    generations = await job_rows.generations_of(control, job.id)
    history = await event_rows.states_of_job(control, job.id)
    resolution, stretches = await _stretches(points, job.id, generations)
    facts = Facts(
        began=job.started_at.timestamp(),
        now=(job.ended_at or now).timestamp(),
        stays=stays(history, job.started_at),
        memberships=_memberships(generations, history, await checkpoint_rows.saved_last(control, job.id)),
        stretches=stretches,
        faults=[_fault(story) for story in found],
        tells_steps=stored_part(job, "script") is None,
    )
    return _describe(job, now, account(facts), found, resolution)


def stays(history: Sequence[EventRow], started_at: datetime) -> list[Stay]:
    """The states that the job went through since it was first placed."""
    found: list[Stay] = []
    for event in (event for event in history if event.time >= started_at):
        state = JobState(event.data["state"])
        before = found[-1] if found else None
        same = before is not None and before.state is state
        pausing = event.data["reason"] == EndReason.PAUSED if "reason" in event.data else same and found[-1].pausing
        stay = Stay(event.time.timestamp(), state, pausing and state is JobState.STOPPING)
        if before is None or (before.state, before.pausing) != (stay.state, stay.pausing):
            found.append(stay)
    return found


def _memberships(generations: Sequence[GenerationRow], history: Sequence[EventRow], saved: dict[int, datetime]) -> list[Membership]:
    placed = {event.generation for event in history if event.type == PLACED}
    return [
        Membership(
            generation=row.generation,
            start_step=row.start_step,
            started=row.started_at.timestamp(),
            ended=row.ended_at.timestamp() if row.ended_at else None,
            placed=row.generation in placed,
            saved=saved[row.generation].timestamp() if row.generation in saved else None,
            first_step=row.first_step_at.timestamp() if row.first_step_at else None,
        )
        for row in generations
    ]


def _fault(story: Story) -> Fault:
    row, over_at = story.row, story.over_at
    return Fault(row.id, row.generation, row.next_generation, row.fault_at.timestamp(), over_at.timestamp() if over_at else None)


# --- steps


async def _stretches(points: AsyncSession, job_id: str, generations: Sequence[GenerationRow]) -> tuple[int, list[Stretch]]:
    """(steps in each at most, the stretches by generation and step)."""
    gone_to = await storage.gone_to_steps(points, job_id)
    if has_points_from(0, gone_to) and await step_records.count(points, job_id, STEP_SECONDS) <= MAX_RECORDS:
        records = [record async for chunk in step_records.in_order(points, job_id) for record in steps.parse(chunk)]
        return 1, of_records(records)
    newest = await step_records.newest_steps(points, job_id, STEP_SECONDS)
    if not newest:  # all of it was deleted
        return 1, []
    level = max(level_for(max(newest.values()), MAX_BUCKETS), finest_curves_from(0, gone_to))
    starts = {row.generation: row.start_step for row in generations}
    return level, of_buckets(await step_records.rollups(points, job_id, STEP_SECONDS, level), starts, level)


def of_records(records: Sequence[StepRecord]) -> list[Stretch]:
    own = [
        Stretch(record.generation, record.step, record.step, record.began, record.time, record.seconds) for record in records if record.own
    ]
    return sorted(own, key=lambda stretch: (stretch.generation, stretch.first))


def of_buckets(buckets: Sequence[StoredBucket], starts: dict[int, int], level: int) -> list[Stretch]:
    """Each reaches from the end of the one before it in the same generation, and holds what lay between its steps too."""
    found: list[Stretch] = []
    for each in buckets:
        before = found[-1] if found and found[-1].generation == each.generation else None
        ended = each.bucket.last_time
        began = before.ended if before else ended - each.bucket.sum
        first = max(each.number * level, starts.get(each.generation, 0) + 1, before.last + 1 if before else 0)
        found.append(Stretch(each.generation, first, max(first, each.bucket.last_step), min(began, ended), ended, each.bucket.sum))
    return found


# --- the answer


def _describe(job: JobRow, now: datetime, result: Account, found: Sequence[Story], resolution: int) -> Goodput:
    assert job.started_at is not None
    return Goodput(
        job_id=job.id,
        goodput=result.goodput,
        text=_summary(job, result),
        since=job.started_at,
        until=job.ended_at or now,
        wall_seconds=result.wall,
        paused_seconds=result.paused,
        queued_seconds=max(0.0, (job.started_at - job.created_at).total_seconds()),
        useful_steps=result.useful_steps,
        redone_steps=result.redone_steps,
        parts=[
            TimePart(cause=cause, seconds=seconds, share=seconds / result.wall if result.wall else 0.0, text=WORDS[cause])
            for cause, seconds in result.parts.items()
            if seconds > 0 or cause is Cause.STEPPING
        ],
        incidents=[IncidentPart(incident_id=story.row.id, seconds=result.by_incident[story.row.id], text=_words(story)) for story in found],
        resolution_steps=resolution,
    )


def _words(story: Story) -> str:
    return what_happened(Failure.model_validate(story.row.culprit)) if story.row.culprit else story.row.why


def _summary(job: JobRow, result: Account) -> str:
    if result.goodput is None and stored_part(job, "script") is not None:
        return "a script does not report its steps"
    if result.goodput is None and (job.progress or {}).get("step"):
        return "its steps are no longer kept; the history says when and why they were deleted"
    if result.goodput is None:
        return "no step has been finished yet"
    return f"{result.goodput:.1%} of {result.wall:.1f} s went into {result.useful_steps} steps that count"


def _not_started(job: JobRow, now: datetime) -> Goodput:
    until = job.ended_at or now
    return Goodput(
        job_id=job.id,
        goodput=None,
        text="it has not had slots yet",
        since=None,
        until=until,
        wall_seconds=0.0,
        paused_seconds=0.0,
        queued_seconds=max(0.0, (until - job.created_at).total_seconds()),
        useful_steps=0,
        redone_steps=0,
        parts=[],
        incidents=[],
        resolution_steps=1,
    )
