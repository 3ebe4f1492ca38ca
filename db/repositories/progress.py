"""The few columns that keeping a job's progress needs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import and_, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from db.models.jobs import GenerationRow, JobRow, RankRow


@dataclass(frozen=True)
class JobState:
    generation: int
    progress: dict[str, Any] | None
    total_steps: int | None
    ended: bool
    start_step: int  # of its newest generation

    def still_counts(self, generation: int, step: int) -> bool:
        """Whether this is how far the job is: late news of an older generation is, up to where the newest one went on from."""
        told = (self.progress or {}).get("step") or 0
        return generation >= self.generation or told < step <= self.start_step


async def load(session: AsyncSession, job_ids: Collection[str]) -> dict[str, JobState]:
    """Job rows, locked where the database can, with the total that rank 0 announced."""
    rank0 = and_(RankRow.job_id == JobRow.id, RankRow.generation == JobRow.generation, RankRow.rank == 0)
    newest = and_(GenerationRow.job_id == JobRow.id, GenerationRow.generation == JobRow.generation)
    query = (
        select(JobRow.id, JobRow.generation, JobRow.progress, RankRow.total_steps, JobRow.ended_at, GenerationRow.start_step)
        .outerjoin(RankRow, rank0)
        .outerjoin(GenerationRow, newest)
        .where(JobRow.id.in_(job_ids))
        .with_for_update(of=JobRow)
    )
    return {
        job_id: JobState(generation, progress, total_steps, ended_at is not None, start_step or 0)
        for job_id, generation, progress, total_steps, ended_at, start_step in await session.execute(query)
    }


async def save(session: AsyncSession, job_id: str, progress: dict[str, Any]) -> None:
    await session.execute(update(JobRow).where(JobRow.id == job_id).values(progress=progress))


async def note_first_step(session: AsyncSession, job_id: str, generation: int, step: int, time: datetime) -> None:
    """The earliest report stays: a coordinator that was started again hears of a later step first."""
    later = or_(GenerationRow.first_step_at.is_(None), GenerationRow.first_step_at > time)
    mine = (GenerationRow.job_id == job_id, GenerationRow.generation == generation)
    await session.execute(update(GenerationRow).where(*mine, later).values(first_step_at=time, first_step=step))
