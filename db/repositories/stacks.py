"""Queries for the Python stacks of ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from sqlalchemy import delete, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.models.jobs import RankStacksRow


async def of_generation(session: AsyncSession, job_id: str, generation: int) -> dict[int, RankStacksRow]:
    """The stacks of a generation by rank."""
    mine = (RankStacksRow.job_id == job_id, RankStacksRow.generation == generation)
    return {row.rank: row for row in await session.scalars(select(RankStacksRow).where(*mine).order_by(RankStacksRow.rank))}


async def of_rank(session: AsyncSession, job_id: str, generation: int, rank: int) -> RankStacksRow | None:
    return await session.get(RankStacksRow, (job_id, generation, rank))


async def unanswered(session: AsyncSession, keys: Collection[tuple[str, int]]) -> dict[tuple[str, int], list[tuple[str, int]]]:
    """By (job, generation), each request and rank that is yet to answer, in rank order."""
    found: defaultdict[tuple[str, int], list[tuple[str, int]]] = defaultdict(list)
    if keys:
        columns = (RankStacksRow.job_id, RankStacksRow.generation, RankStacksRow.request, RankStacksRow.rank)
        open_ones = (tuple_(RankStacksRow.job_id, RankStacksRow.generation).in_(keys), RankStacksRow.answered_at.is_(None))
        query = select(*columns).where(*open_ones).order_by(RankStacksRow.rank)
        for job_id, generation, request, rank in await session.execute(query):
            found[job_id, generation].append((request, rank))
    return found


async def forget_others(session: AsyncSession, job_id: str, generation: int) -> None:
    """Delete the stacks of the job's other generations."""
    await session.execute(delete(RankStacksRow).where(RankStacksRow.job_id == job_id, RankStacksRow.generation != generation))


async def forget(session: AsyncSession, job_id: str) -> None:
    await session.execute(delete(RankStacksRow).where(RankStacksRow.job_id == job_id))
