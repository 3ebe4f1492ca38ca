"""Queries about logged images, histograms and tables, which are artifacts of the kind `media`."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.models.artifacts import ArtifactChunkRow, ArtifactRow


async def held_by_job(session: AsyncSession, job_id: str) -> tuple[int, int]:
    """(objects, bytes) of a job, stored, arriving or failed, which have no bytes."""
    query = select(func.count(), func.sum(ArtifactRow.bytes)).where(ArtifactRow.job_id == job_id, ArtifactRow.kind == "media")
    objects, size = (await session.execute(query)).one()
    return int(objects), int(size or 0)


async def any_refused(session: AsyncSession, job_id: str) -> bool:
    """Whether an object of the job was refused before: its row has no hash."""
    mine = ArtifactRow.job_id == job_id, ArtifactRow.kind == "media", ArtifactRow.error.is_not(None), ArtifactRow.sha256 == ""
    query = select(ArtifactRow.id).where(*mine).limit(1)
    return await session.scalar(query) is not None


class LoggedObject(NamedTuple):
    """An object without its content. `items`: images, values or rows. Ids grow in the order of arrival."""

    id: str
    key: str
    kind: str
    items: int
    step: int
    generation: int
    rank: int
    bytes: int
    created_at: datetime


async def of_job(session: AsyncSession, job_id: str, key: str | None = None) -> list[LoggedObject]:
    """The stored objects of a job, of one key or of all, the oldest arrival first."""
    row = ArtifactRow
    columns = (row.id, row.media_key, row.media_kind, row.media_count, row.first_step, row.generation, row.rank, row.bytes, row.created_at)
    query = select(*columns).where(row.job_id == job_id, row.kind == "media", row.stored_at.is_not(None), row.error.is_(None))
    if key is not None:
        query = query.where(row.media_key == key)
    found = await session.execute(query.order_by(row.id))
    return [LoggedObject(*each) for each in found]  # type: ignore[arg-type]  # in these rows nothing is null


async def contents(points: AsyncSession, artifact_ids: Collection[str]) -> dict[str, bytes]:
    """The whole contents of some objects."""
    query = select(ArtifactChunkRow).where(ArtifactChunkRow.artifact_id.in_(artifact_ids))
    pieces: dict[str, list[bytes]] = {}
    for chunk in await points.scalars(query.order_by(ArtifactChunkRow.artifact_id, ArtifactChunkRow.number)):
        pieces.setdefault(chunk.artifact_id, []).append(chunk.data)
    return {artifact_id: b"".join(data) for artifact_id, data in pieces.items()}
