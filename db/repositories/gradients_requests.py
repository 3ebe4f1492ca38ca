"""Queries about requests for gradients of a running job's next step."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.models.artifacts import ArtifactRow, GradientsRequestRow


class GradientsAnswer(NamedTuple):
    """A file that a rank has left for a request, or the reason why it leaves none."""

    rank: int
    kind: str
    step: int
    error: str | None


async def newest(session: AsyncSession, job_id: str) -> GradientsRequestRow | None:
    query = select(GradientsRequestRow).where(GradientsRequestRow.job_id == job_id).order_by(GradientsRequestRow.id.desc()).limit(1)
    return (await session.scalars(query)).one_or_none()


async def answers(session: AsyncSession, request: GradientsRequestRow) -> list[GradientsAnswer]:
    columns = ArtifactRow.rank, ArtifactRow.kind, ArtifactRow.first_step, ArtifactRow.error
    query = select(*columns).where(ArtifactRow.job_id == request.job_id, ArtifactRow.request_id == request.id)
    return [GradientsAnswer(*row) for row in await session.execute(query)]


async def jobs_with_requests(session: AsyncSession, job_ids: Collection[str]) -> set[str]:
    """The jobs, among these, with any request for gradients."""
    if not job_ids:
        return set()
    return set(await session.scalars(select(GradientsRequestRow.job_id).where(GradientsRequestRow.job_id.in_(job_ids)).distinct()))
