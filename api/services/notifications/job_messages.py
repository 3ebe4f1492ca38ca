"""What notifications say about jobs and the coordinator. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from paceline.api.core.disk import Disk
from paceline.api.schemas.jobs import Failure
from paceline.api.services.history.incident_views import what_happened
from paceline.api.services.notifications.messages import (
    LONGEST_DETAIL,
    LONGEST_NAME,
    LONGEST_TITLE,
    FailurePart,
    JobPart,
    Notification,
    in_one_line,
)
from paceline.cluster.history.notifications import NotificationEvent
from paceline.db.models.jobs import JobRow
from paceline.monitoring.words import counted, duration

_VERBS: Mapping[NotificationEvent, str] = {
    NotificationEvent.FAILED: "failed",
    NotificationEvent.FINISHED: "finished",
    NotificationEvent.CANCELLED: "was cancelled",
    NotificationEvent.DEGRADED: "lost ranks and recovers",
    NotificationEvent.NAN: "has a loss that is NaN or infinite",
    NotificationEvent.QUEUED_LONG: "waits for slots",
    NotificationEvent.GOODPUT_LOW: "loses goodput",
}

_GOOD_ENDS = frozenset({NotificationEvent.FINISHED, NotificationEvent.CANCELLED})
#: What follows the verb goes on with its sentence.
_WITHOUT_COLON = _GOOD_ENDS | {NotificationEvent.QUEUED_LONG}


def of_job(event: NotificationEvent, job: JobRow, what: str, base: str, now: datetime) -> Notification:
    """A message about a job. `what`: what happened, in the words of the history."""
    failure = failure_of(job) if event in (NotificationEvent.FAILED, NotificationEvent.DEGRADED) else None
    told = what_happened(failure) if failure is not None else _end_in_words(job) if event in _GOOD_ENDS else what
    name = in_one_line(job.name, LONGEST_NAME)
    joint = " " if event in _WITHOUT_COLON else ": "
    title = in_one_line(f"Job {name} {_VERBS[event]}{f'{joint}{told}' if told else ''}", LONGEST_TITLE)
    part = job_part(job)
    details = [("Project", part.project), ("Submitted by", part.created_by), *_facts(event, job, part)]
    if failure is not None and (said := _beyond(failure, what)):
        details.append(("What follows", said))
    return Notification(
        event=event.value,
        time=now,
        title=title,
        details=details,
        url=f"{base}/jobs/{job.id}" if base else "",
        job=part,
        failure=None if failure is None else _failure_part(failure),
    )


def _end_in_words(job: JobRow) -> str:
    """How far an ended job came: "at step 450, after 24 s" with slots. Empty: it never ran."""
    step, said = _whole((job.progress or {}).get("step")), list[str]()
    if step is not None:
        said.append(f"at step {step:,}")
    if job.started_at is not None:
        said.append(f"after {duration(job.ran_seconds)}")
    return ", ".join(said)


def _beyond(failure: Failure, why: str) -> str:
    """The part of a decision that follows the failure with which it begins."""
    rest = why.removeprefix(f"rank {failure.rank}: {failure.message}").lstrip("; ")
    return in_one_line(rest, LONGEST_DETAIL)


def job_part(job: JobRow) -> JobPart:
    progress = job.progress or {}
    return JobPart(
        id=job.id,
        name=in_one_line(job.name, LONGEST_NAME),
        project=in_one_line(job.project, LONGEST_NAME),
        state=job.state.value,
        created_by=in_one_line(job.created_by, LONGEST_NAME),
        step=_whole(progress.get("step")),
        total_steps=_whole(progress.get("total_steps")),
    )


def failure_of(job: JobRow) -> Failure | None:
    """The failure that the job shows; None: there is none, or none that this version reads."""
    if not isinstance(job.failure, dict):
        return None
    try:
        return Failure.model_validate(job.failure)
    except ValidationError:
        return None


def _failure_part(failure: Failure) -> FailurePart:
    return FailurePart(
        rank=failure.rank,
        node=failure.node_name,
        kind=failure.exception or failure.kind,
        message=in_one_line(failure.message, LONGEST_DETAIL),
        where=failure.where,
    )


def _facts(event: NotificationEvent, job: JobRow, part: JobPart) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if part.step is not None:
        of_all = f" of {part.total_steps:,}" if part.total_steps else ""
        found.append(("Step", f"{part.step:,}{of_all}"))
    if job.ended_at is not None and job.started_at is not None:
        found.append(("Ran for", duration(job.ran_seconds)))
    if event is NotificationEvent.DEGRADED and job.restarts:
        found.append(("Restarts", counted(job.restarts, "restart")))
    return found


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def waiting_words(job: JobRow, now: datetime) -> str:
    """How long a job has waited, and for what."""
    reason = (job.pending or {}).get("text")
    waited = duration((now - job.state_since).total_seconds())
    return f"for {waited}{f': {reason}' if isinstance(reason, str) and reason else ''}"


def of_disk(disk: Disk, base: str, now: datetime) -> Notification:
    gib = 1 << 30
    return Notification(
        event=NotificationEvent.DISK_LOW.value,
        time=now,
        title=f"The coordinator's disk is nearly full: {disk.free / gib:.1f} of {disk.total / gib:.1f} GiB are free",
        details=[
            ("Limit", f"{disk.limit / gib:.1f} GiB free (PACELINE_DISK_LOW)"),
            ("Consequence", "points, log lines and files wait on their nodes until there is room"),
            ("What helps", "free some space, or delete what ended jobs have recorded (paceline delete)"),
        ],
        url=f"{base}/storage" if base else "",
    )
