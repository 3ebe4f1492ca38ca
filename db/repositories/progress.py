"""The few columns that a job's progress needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Table, and_, bindparam, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.models.jobs import GenerationRow, JobRow, RankRow

_JOBS = cast("Table", JobRow.__table__)  # not the ORM's row, of which nothing is loaded here
_SAVE = update(_JOBS).where(_JOBS.c.id == bindparam("saved_id")).values(progress=bindparam("saved"))


@dataclass(frozen=True)
class StoredProgress:
    generation: int
    progress: dict[str, Any] | None
    total_steps: int | None
    start_step: int  # of its newest generation
    first_step: int | None  # the first that it told of

    def still_counts(self, generation: int, step: int) -> bool:
        """Whether this is how far the job is: late records of an older generation count up to the step from which the newest one went
        on."""
        told = (self.progress or {}).get("step") or 0
        return generation >= self.generation or told < step <= self.start_step


async def load(session: AsyncSession, job_ids: Collection[str]) -> dict[str, StoredProgress]:
    """Job rows, locked where the database can, with the total that rank 0 announced. They are locked in id order, so that two transactions
    never wait for each other."""
    rank0 = and_(RankRow.job_id == JobRow.id, RankRow.generation == JobRow.generation, RankRow.rank == 0)
    newest = and_(GenerationRow.job_id == JobRow.id, GenerationRow.generation == JobRow.generation)
    query = (
        select(JobRow.id, JobRow.generation, JobRow.progress, RankRow.total_steps, GenerationRow.start_step, GenerationRow.first_step)
        .outerjoin(RankRow, rank0)
        .outerjoin(GenerationRow, newest)
        .where(JobRow.id.in_(job_ids))
        .order_by(JobRow.id)
        .with_for_update(of=JobRow)
    )
    return {
        job_id: StoredProgress(generation, progress, total_steps, start_step or 0, first_step)
        for job_id, generation, progress, total_steps, start_step, first_step in await session.execute(query)
    }


async def save(session: AsyncSession, progress: Mapping[str, dict[str, Any]]) -> None:
    """Store progress by job; one statement for all of them."""
    if progress:
        await session.execute(_SAVE, [{"saved_id": job_id, "saved": document} for job_id, document in progress.items()])


async def note_first_step(session: AsyncSession, job_id: str, generation: int, step: int, time: datetime) -> None:
    """Store the first step of a generation. The earliest report stays: a restarted coordinator gets a later step first."""
    later = or_(GenerationRow.first_step_at.is_(None), GenerationRow.first_step_at > time)
    mine = (GenerationRow.job_id == job_id, GenerationRow.generation == generation)
    await session.execute(update(GenerationRow).where(*mine, later).values(first_step_at=time, first_step=step))
