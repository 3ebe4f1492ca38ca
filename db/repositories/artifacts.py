"""Queries about artifacts, their chunks, and the requests for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.dialects import dialect_of
from paceline.db.models.artifacts import ArtifactChunkRow, ArtifactRow, ProfileRequestRow


async def get(session: AsyncSession, artifact_id: str) -> ArtifactRow | None:
    return await session.get(ArtifactRow, artifact_id)


async def get_locked(session: AsyncSession, artifact_id: str) -> ArtifactRow | None:
    return await session.get(ArtifactRow, artifact_id, with_for_update=True, populate_existing=True)


async def by_name(session: AsyncSession, job_id: str, generation: int, rank: int, name: str) -> ArtifactRow | None:
    query = select(ArtifactRow).where(
        ArtifactRow.job_id == job_id, ArtifactRow.generation == generation, ArtifactRow.rank == rank, ArtifactRow.name == name
    )
    return (await session.scalars(query)).one_or_none()


async def page_of_job(session: AsyncSession, job_id: str, kind: str | None, before: str | None, limit: int) -> Sequence[ArtifactRow]:
    """A page of a job's artifacts, of one kind or of all but logged media, the newest first."""
    wanted = ArtifactRow.kind == kind if kind else ArtifactRow.kind.not_in(("limit", "media"))
    query = select(ArtifactRow).where(ArtifactRow.job_id == job_id, wanted)
    if before is not None:
        query = query.where(ArtifactRow.id < before)
    return (await session.scalars(query.order_by(ArtifactRow.id.desc()).limit(limit))).all()


async def held_by_job(session: AsyncSession, job_id: str) -> tuple[int, int]:
    """(files, bytes) of a job's traces and gradients, stored, arriving or failed, which have no bytes."""
    mine = ArtifactRow.job_id == job_id, ArtifactRow.kind.not_in(("file", "model", "media", "limit"))
    files, size = (await session.execute(select(func.count(), func.sum(ArtifactRow.bytes)).where(*mine))).one()
    return int(files), int(size or 0)


async def newest_request(session: AsyncSession, job_id: str) -> ProfileRequestRow | None:
    query = select(ProfileRequestRow).where(ProfileRequestRow.job_id == job_id).order_by(ProfileRequestRow.id.desc()).limit(1)
    return (await session.scalars(query)).one_or_none()


async def answered(session: AsyncSession, request_id: str) -> set[int]:
    """The ranks that have answered with a trace, or with the reason why there is none."""
    return set(await session.scalars(select(ArtifactRow.rank).where(ArtifactRow.request_id == request_id)))


class RecordedStep(NamedTuple):
    """How many records of gradients one generation has left of a step, and how many of them are stored or failed."""

    step: int
    generation: int
    files: int
    stored: int
    failed: int


async def recorded_steps(session: AsyncSession, job_id: str) -> list[RecordedStep]:
    """The steps whose gradients were recorded, by generation."""
    columns = func.count(), func.count(ArtifactRow.stored_at), func.count(ArtifactRow.error)
    query = select(ArtifactRow.first_step, ArtifactRow.generation, *columns)
    query = query.where(ArtifactRow.job_id == job_id, ArtifactRow.kind == "gradients")
    query = query.group_by(ArtifactRow.first_step, ArtifactRow.generation).order_by(ArtifactRow.generation)
    return [RecordedStep(*row) for row in await session.execute(query)]


async def files_of_step(session: AsyncSession, job_id: str, step: int) -> Sequence[ArtifactRow]:
    """The records and the snapshots of gradients of a step, of all generations, by rank."""
    mine = ArtifactRow.job_id == job_id, ArtifactRow.first_step == step, ArtifactRow.kind.in_(("gradients", "snapshot"))
    return (await session.scalars(select(ArtifactRow).where(*mine).order_by(ArtifactRow.rank, ArtifactRow.id))).all()


# --- contents


async def chunks(points: AsyncSession, artifact_id: str) -> int:
    """The number of stored chunks; they arrive in order."""
    last = await points.scalar(select(func.max(ArtifactChunkRow.number)).where(ArtifactChunkRow.artifact_id == artifact_id))
    return 0 if last is None else int(last) + 1


async def add_chunk(points: AsyncSession, artifact_id: str, number: int, data: bytes) -> None:
    """Store a chunk. One that is stored already is left as it is."""
    dialect = dialect_of(points)
    row = {"artifact_id": artifact_id, "number": number, "data": data}
    await points.execute(dialect.insert(ArtifactChunkRow).values(row).on_conflict_do_nothing())


async def chunk(points: AsyncSession, artifact_id: str, number: int) -> bytes | None:
    row = await points.get(ArtifactChunkRow, (artifact_id, number))
    return None if row is None else row.data


async def drop_last_chunks(points: AsyncSession, artifact_id: str, most: int) -> int:
    """Delete the last chunks of an artifact. Returns how many."""
    mine = ArtifactChunkRow.artifact_id == artifact_id
    last = select(ArtifactChunkRow.number).where(mine).order_by(ArtifactChunkRow.number.desc()).limit(most)
    numbers = list(await points.scalars(last))
    await points.execute(delete(ArtifactChunkRow).where(mine, ArtifactChunkRow.number.in_(numbers)))
    return len(numbers)


async def jobs_with_requests(session: AsyncSession, job_ids: Collection[str]) -> set[str]:
    """The jobs, among these, with any request for a trace."""
    if not job_ids:
        return set()
    return set(await session.scalars(select(ProfileRequestRow.job_id).where(ProfileRequestRow.job_id.in_(job_ids)).distinct()))
