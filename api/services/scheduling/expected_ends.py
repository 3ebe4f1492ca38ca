"""Reads when the jobs that hold slots are expected to free them, for the autoscaler."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.services.specs.job_views import job_view
from paceline.cluster.autoscaling.facts import ExpectedEnd
from paceline.cluster.autoscaling.forecast import expected_end
from paceline.db.models.jobs import GenerationRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories.slots import SlotHolder


async def read(session: AsyncSession, holders: Sequence[SlotHolder], now: datetime) -> list[ExpectedEnd]:
    """Return the expected ends of jobs, of those where one is known. `holders`: of all slots."""
    held = defaultdict[str, Counter[str]](Counter)
    for holder in holders:
        held[holder.job_id][holder.node_id] += 1
    jobs = await job_rows.by_id(session, held.keys())
    generations = await job_rows.generations(session, [(job.id, job.generation) for job in jobs.values()])
    found = list[ExpectedEnd]()
    for job in jobs.values():
        generation = generations.get((job.id, job.generation))
        at = expected_end(job_view(job, generation, ()), last_step_at(job.progress or {}, generation), now)
        if at is not None:
            found.append(ExpectedEnd(job.id, at, held[job.id]))
    return found


def last_step_at(progress: Mapping[str, Any], generation: GenerationRow | None) -> datetime | None:
    """When a job takes its last step, by its stored progress; None: that is not known, or was told of an earlier generation."""
    left, told = progress.get("eta_seconds"), progress.get("updated_at")
    if generation is None or left is None or told is None:
        return None
    told_at = datetime.fromisoformat(told)
    return told_at + timedelta(seconds=left) if told_at >= generation.started_at else None
