"""Changes what a job is called and filed under, its priority and its notes, and archives it. What it trains never changes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError
from paceline.api.schemas.common import Actor
from paceline.api.schemas.jobs import JobEdit
from paceline.api.services.jobs import revisions, secrets
from paceline.api.services.lifecycle import job_lifecycle
from paceline.cluster.states import TERMINAL_JOB_STATES
from paceline.db.models.jobs import JobRow

MOST_LABELS = 64


async def edit(session: AsyncSession, job: JobRow, asked: JobEdit, if_match: str | None, actor: Actor, now: datetime) -> None:
    """Change a job as asked. An edit that changes nothing leaves its revision as it is."""
    revisions.check(job, if_match)
    wanted: dict[str, Any] = asked.model_dump(exclude_none=True, exclude={"labels"})
    if asked.labels is not None:
        wanted["labels"] = _merged(job, asked.labels)
    changes = {name: value for name, value in wanted.items() if value != getattr(job, name)}
    if "project" in changes:
        await secrets.require_movable(session, job, changes["project"])
    if changes:
        await job_lifecycle.edit(session, job, changes, actor, now)


def _merged(job: JobRow, asked: Mapping[str, str | None]) -> dict[str, str]:
    """The job's labels with those that are asked for, without those asked for as null."""
    labels = {name: value for name, value in {**job.labels, **asked}.items() if value is not None}
    if len(labels) > MOST_LABELS:
        raise ProblemError("invalid_request", f"job {job.name} would have {len(labels)} labels; the limit is {MOST_LABELS}: remove some")
    return labels


async def archive(session: AsyncSession, job: JobRow, if_match: str | None, actor: Actor, now: datetime) -> None:
    """Put an ended job out of sight. Asking again is harmless. Raises job_not_ended."""
    revisions.check(job, if_match)
    if job.state not in TERMINAL_JOB_STATES:
        raise ProblemError(
            "job_not_ended", f"job {job.name} is {job.state.value}; it can be archived once it has ended: cancel it, or wait for it"
        )
    if job.archived_at is None:
        await job_lifecycle.set_archived(session, job, now, actor, now)


async def unarchive(session: AsyncSession, job: JobRow, if_match: str | None, actor: Actor, now: datetime) -> None:
    """Bring an archived job back into lists. Asking again is harmless."""
    revisions.check(job, if_match)
    if job.archived_at is not None:
        await job_lifecycle.set_archived(session, job, None, actor, now)
