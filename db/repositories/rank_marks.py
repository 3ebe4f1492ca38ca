"""Queries for the ranks that a node holds, and for how far their events have been applied."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.cluster.protocol import RankKey
from paceline.cluster.states import RankState
from paceline.db.dialects import dialect_of
from paceline.db.models.jobs import RankEventMarkRow, RankRow


async def ranks_of(session: AsyncSession, node_id: str, job_ids: Collection[str]) -> set[RankKey]:
    query = select(RankRow.job_id, RankRow.generation, RankRow.rank).where(RankRow.node_id == node_id, RankRow.job_id.in_(job_ids))
    return {RankKey(*row) for row in await session.execute(query)}


async def living_ranks_of(session: AsyncSession, node_ids: Collection[str]) -> dict[str, set[RankKey]]:
    """The ranks that these nodes hold and that have not ended, by node."""
    query = select(RankRow.node_id, RankRow.job_id, RankRow.generation, RankRow.rank).where(
        RankRow.node_id.in_(node_ids), RankRow.state.not_in([RankState.EXITED, RankState.MOVED])
    )
    found: dict[str, set[RankKey]] = {node_id: set() for node_id in node_ids}
    for node_id, job_id, generation, rank in await session.execute(query):
        found[node_id].add(RankKey(job_id, generation, rank))
    return found


async def last_generations(session: AsyncSession, job_id: str, rank: int) -> dict[tuple[int, int], int]:
    """The last generation in which each process had a place that was started as this rank, by the generation and the rank that it was
    started as."""
    born = func.coalesce(RankRow.born_generation, RankRow.generation), func.coalesce(RankRow.born_rank, RankRow.rank)
    query = select(*born, func.max(RankRow.generation)).where(RankRow.job_id == job_id, born[1] == rank).group_by(*born)
    return {(generation, number): last for generation, number, last in await session.execute(query)}


async def load(session: AsyncSession, places: Sequence[RankKey], *, lock: bool = False) -> dict[RankKey, int]:
    """Marks of the places that have one; `lock` keeps other transactions off them; in the order of their keys, so that two
    transactions never wait for each other."""
    key = (RankEventMarkRow.job_id, RankEventMarkRow.generation, RankEventMarkRow.rank)
    query = select(*key, RankEventMarkRow.seq).where(tuple_(*key).in_(places))
    if lock:
        query = query.order_by(*key).with_for_update()
    return {RankKey(job_id, generation, rank): seq for job_id, generation, rank, seq in await session.execute(query)}


async def save(session: AsyncSession, marks: Mapping[RankKey, int]) -> None:
    if not marks:
        return
    dialect = dialect_of(session)
    statement = dialect.insert(RankEventMarkRow)
    key = [RankEventMarkRow.job_id, RankEventMarkRow.generation, RankEventMarkRow.rank]
    rows = [{"job_id": job_id, "generation": generation, "rank": rank, "seq": seq} for (job_id, generation, rank), seq in marks.items()]
    await session.execute(statement.on_conflict_do_update(index_elements=key, set_={"seq": statement.excluded.seq}), rows)
