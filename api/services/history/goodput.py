"""A job's goodput: its history, generations, incidents and step records, as inputs of `cluster.history.goodput`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.schemas.goodput import Goodput, IncidentPart, TimePart
from paceline.api.schemas.jobs import Failure
from paceline.api.services.history import incident_views, steps
from paceline.api.services.history.incident_views import IncidentContext, what_happened
from paceline.api.services.history.steps import STEP_SECONDS, StepRecord
from paceline.cluster.history.goodput import (
    WORDS,
    Cause,
    Fault,
    GenerationFacts,
    GoodputInputs,
    StatePeriod,
    StepRun,
    TimeAccount,
    account,
)
from paceline.cluster.history.storage import finest_curves_from, has_points_from
from paceline.cluster.states import EndReason, JobState
from paceline.db.models.events import EventRow
from paceline.db.models.jobs import GenerationRow, JobRow
from paceline.db.repositories import checkpoints as checkpoint_rows
from paceline.db.repositories import events as event_rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import step_records, storage
from paceline.db.repositories.metric_columns import StoredBucket
from paceline.monitoring.rollup import level_for
from paceline.monitoring.words import counted, duration

#: Up to this many steps are read one by one; beyond, from roll-ups of at most MAX_BUCKETS.
MAX_RECORDS = 5_000
MAX_BUCKETS = 2_000
PLACED = "job.placed"


async def of_job(control: AsyncSession, points: AsyncSession, job: JobRow, now: datetime) -> Goodput:
    if job.started_at is None:
        return _not_started(job, now)
    found = await incident_views.incident_contexts(control, points, job, now)
    generations = await job_rows.generations_of(control, job.id)
    history = await event_rows.states_of_job(control, job.id)
    resolution, step_runs = await _step_runs(points, job.id, generations)
    facts = GoodputInputs(
        began=job.started_at.timestamp(),
        now=(job.ended_at or now).timestamp(),
        state_periods=state_periods(history, job.started_at),
        generations=_generation_facts(generations, history, await checkpoint_rows.saved_last(control, job.id)),
        step_runs=step_runs,
        faults=[_fault(story) for story in found],
        tells_steps=not job.spec.is_script,
    )
    return _describe(job, now, await asyncio.to_thread(account, facts), found, resolution)


def state_periods(history: Sequence[EventRow], started_at: datetime) -> list[StatePeriod]:
    """The states of the job since it was first placed."""
    found: list[StatePeriod] = []
    for event in (event for event in history if event.time >= started_at):
        state = JobState(event.data["state"])
        before = found[-1] if found else None
        same = before is not None and before.state is state
        pausing = event.data["reason"] == EndReason.PAUSED if "reason" in event.data else same and found[-1].pausing
        period = StatePeriod(event.time.timestamp(), state, pausing and state is JobState.STOPPING)
        if before is None or (before.state, before.pausing) != (period.state, period.pausing):
            found.append(period)
    return found


def _generation_facts(
    generations: Sequence[GenerationRow], history: Sequence[EventRow], saved: dict[int, datetime]
) -> list[GenerationFacts]:
    placed = {event.generation for event in history if event.type == PLACED}
    return [
        GenerationFacts(
            number=row.generation,
            start_step=row.start_step,
            started=row.started_at.timestamp(),
            ended=row.ended_at.timestamp() if row.ended_at else None,
            placed=row.generation in placed,
            saved=saved[row.generation].timestamp() if row.generation in saved else None,
            first_step=row.first_step_at.timestamp() if row.first_step_at else None,
        )
        for row in generations
    ]


def _fault(story: IncidentContext) -> Fault:
    row, over_at = story.row, story.over_at
    return Fault(
        incident=row.id,
        generation=row.generation,
        next_generation=row.next_generation,
        step=story.step,
        began=row.fault_at.timestamp(),
        ended=over_at.timestamp() if over_at else None,
        wanted=row.cause is EndReason.NODE_REMOVED,
    )


# --- steps


async def _step_runs(points: AsyncSession, job_id: str, generations: Sequence[GenerationRow]) -> tuple[int, list[StepRun]]:
    """(steps in each run at most, the runs by generation and step)."""
    gone_to = await storage.gone_to_steps(points, job_id)
    if has_points_from(0, gone_to) and await step_records.count(points, job_id, STEP_SECONDS) <= MAX_RECORDS:
        rows = [row async for chunk in step_records.in_order(points, job_id) for row in chunk]
        return 1, await asyncio.to_thread(lambda: of_records(steps.parse(rows)))
    newest = await step_records.newest_steps(points, job_id, STEP_SECONDS)
    if not newest:  # all of it was deleted
        return 1, []
    level = max(level_for(max(newest.values()), MAX_BUCKETS), finest_curves_from(0, gone_to))
    starts = {row.generation: row.start_step for row in generations}
    return level, of_buckets(await step_records.of_level(points, job_id, STEP_SECONDS, level), starts, level)


def of_records(records: Sequence[StepRecord]) -> list[StepRun]:
    own = [
        StepRun(record.generation, record.step, record.step, record.began, record.time, record.seconds) for record in records if record.own
    ]
    return sorted(own, key=lambda step_run: (step_run.generation, step_run.first))


def of_buckets(buckets: Sequence[StoredBucket], starts: dict[int, int], level: int) -> list[StepRun]:
    """The runs from roll-ups: each reaches from the end of the one before it in the same generation, and holds the time between its
    steps too."""
    found: list[StepRun] = []
    for each in buckets:
        before = found[-1] if found and found[-1].generation == each.generation else None
        ended = each.bucket.last_time
        began = before.ended if before else ended - each.bucket.sum
        first = max(each.number * level, starts.get(each.generation, 0) + 1, before.last + 1 if before else 0)
        found.append(StepRun(each.generation, first, max(first, each.bucket.last_step), min(began, ended), ended, each.bucket.sum))
    return found


# --- the answer


def _describe(job: JobRow, now: datetime, result: TimeAccount, found: Sequence[IncidentContext], resolution: int) -> Goodput:
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
        useful_steps=None if job.spec.is_script else result.useful_steps,
        redone_steps=None if job.spec.is_script else result.redone_steps,
        parts=[
            TimePart(cause=cause, seconds=seconds, share=seconds / result.wall if result.wall else 0.0, text=WORDS[cause])
            for cause, seconds in result.parts.items()
            if seconds > 0 or cause is Cause.STEPPING
        ],
        incidents=[IncidentPart(incident_id=story.row.id, seconds=result.by_incident[story.row.id], text=_words(story)) for story in found],
        resolution_steps=resolution,
    )


def _words(story: IncidentContext) -> str:
    return what_happened(Failure.model_validate(story.row.culprit)) if story.row.culprit else story.row.why


def _summary(job: JobRow, result: TimeAccount) -> str:
    if result.goodput is None and job.spec.is_script:
        return "not known: a script does not tell how long its steps take"
    if result.goodput is None and (job.progress or {}).get("step"):
        return "its steps are no longer kept; the history says when and why they were deleted"
    if result.goodput is None:
        return "no step was finished" if job.ended_at else "no step has been finished yet"
    steps = counted(result.useful_steps, "step")
    return f"{result.goodput:.1%} of the {duration(result.wall)} since the job got its slots went into useful training ({steps})"


def _not_started(job: JobRow, now: datetime) -> Goodput:
    until = job.ended_at or now
    return Goodput(
        job_id=job.id,
        goodput=None,
        text="it never had slots" if job.ended_at else "it has not had slots yet",
        since=None,
        until=until,
        wall_seconds=0.0,
        paused_seconds=0.0,
        queued_seconds=max(0.0, (until - job.created_at).total_seconds()),
        useful_steps=None if job.spec.is_script else 0,
        redone_steps=None if job.spec.is_script else 0,
        parts=[],
        incidents=[],
        resolution_steps=1,
    )
