"""The queries for incidents of jobs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.models.incidents import OPEN_CAUSE, IncidentRow


async def of_job(session: AsyncSession, job_id: str) -> Sequence[IncidentRow]:
    """The incidents of a job, the oldest first."""
    query = select(IncidentRow).where(IncidentRow.job_id == job_id).order_by(IncidentRow.decided_at, IncidentRow.id)
    return (await session.scalars(query)).all()


async def of_generation(session: AsyncSession, job_id: str, generation: int) -> IncidentRow | None:
    """The incident that ended this generation."""
    query = select(IncidentRow).where(IncidentRow.job_id == job_id, IncidentRow.generation == generation).order_by(IncidentRow.id).limit(1)
    return (await session.scalars(query)).one_or_none()


async def that_led_to(session: AsyncSession, job_id: str, generation: int) -> IncidentRow | None:
    """The incident that was answered by this generation, the newest one where there are several."""
    query = select(IncidentRow).where(IncidentRow.job_id == job_id, IncidentRow.next_generation == generation)
    query = query.order_by(IncidentRow.id.desc()).limit(1)
    return (await session.scalars(query)).one_or_none()


async def unanswered(session: AsyncSession, job_id: str) -> Sequence[IncidentRow]:
    """The restarts that wait for slots."""
    query = select(IncidentRow).where(
        IncidentRow.job_id == job_id,
        IncidentRow.action == "restarted",
        IncidentRow.next_generation.is_(None),
        IncidentRow.closed_at.is_(None),
    )
    return (await session.scalars(query)).all()


async def unfinished(session: AsyncSession, job_ids: Collection[str]) -> Sequence[IncidentRow]:
    """The incidents of these jobs that are neither overcome, as far as the rows themselves tell, nor closed."""
    mine = (IncidentRow.job_id.in_(job_ids), IncidentRow.first_step_at.is_(None), IncidentRow.closed_at.is_(None))
    return (await session.scalars(select(IncidentRow).where(*mine))).all()


async def with_open_cause(session: AsyncSession) -> Sequence[IncidentRow]:
    """Incidents of which a rank has yet to report how it ended."""
    return (await session.scalars(select(IncidentRow).where(OPEN_CAUSE).order_by(IncidentRow.id))).all()
