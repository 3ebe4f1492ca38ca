"""Queries about the earlier generations of jobs: what they ran on and where, where their checkpoints and their own folders are, where they could not start, and how
often they ended for another size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, FromClause, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.cluster.states import CheckpointState, EndReason, RankState
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.jobs import GenerationRow, RankRow
from paceline.db.models.nodes import NodeRow

#: A job may be started from one that its own job has gone another way from.
GOOD = (CheckpointState.COMMITTED, CheckpointState.SUPERSEDED)


class WrittenCheckpoint(NamedTuple):
    """A checkpoint that has not been found to be damaged, and the node that wrote it."""

    id: str
    job_id: str
    node_id: str


async def newest_checkpoints(session: AsyncSession, job_ids: Collection[str]) -> dict[str, WrittenCheckpoint]:
    """The checkpoint that each of these jobs would restore first, by job."""
    if not job_ids:
        return {}
    query = select(CheckpointRow.id, CheckpointRow.job_id, CheckpointRow.node_id)
    query = query.where(CheckpointRow.job_id.in_(job_ids), CheckpointRow.state == CheckpointState.COMMITTED)
    rows = await session.execute(query.order_by(CheckpointRow.step, CheckpointRow.generation))
    return {row.job_id: WrittenCheckpoint(*row) for row in rows}  # the last one of a job stays


async def checkpoints(session: AsyncSession, checkpoint_ids: Collection[str]) -> dict[str, WrittenCheckpoint]:
    """The checkpoints among these that have not been found to be damaged, by id."""
    if not checkpoint_ids:
        return {}
    query = select(CheckpointRow.id, CheckpointRow.job_id, CheckpointRow.node_id)
    query = query.where(CheckpointRow.id.in_(checkpoint_ids), CheckpointRow.state.in_(GOOD))
    return {row.id: WrittenCheckpoint(*row) for row in await session.execute(query)}


async def devices(session: AsyncSession, job_ids: Collection[str]) -> dict[str, str]:
    """The device on which each of these jobs had its newest process of rank 0, by job; those that never had one are left out."""
    if not job_ids:
        return {}
    query = select(RankRow.job_id, RankRow.card, NodeRow.device).join(*_newest_with_process(job_ids))
    rows = await session.execute(query.join(NodeRow, NodeRow.id == RankRow.node_id).where(RankRow.rank == 0))
    return {row.job_id: row.device if row.card is None else "cuda" for row in rows}  # an agent may offer other slots by now


async def last_held(session: AsyncSession, job_ids: Collection[str]) -> dict[str, tuple[tuple[str, int], ...]]:
    """(id, slots) of each node that the newest generation with a process of rank 0 had, in the order of its ranks, by job."""
    if not job_ids:
        return {}
    query = select(RankRow.job_id, RankRow.node_id, func.count()).join(*_newest_with_process(job_ids))
    query = query.group_by(RankRow.job_id, RankRow.node_id).order_by(func.min(RankRow.rank))
    found: dict[str, tuple[tuple[str, int], ...]] = {}
    for job_id, node_id, slots in await session.execute(query):
        found[job_id] = (*found.get(job_id, ()), (node_id, slots))
    return found


def _newest_with_process(job_ids: Collection[str]) -> tuple[FromClause, ColumnElement[bool]]:
    """What ranks are to be joined with, so that those of each job's newest generation whose rank 0 had a process are left."""
    leads = (RankRow.job_id.in_(job_ids), RankRow.rank == 0, RankRow.pid.is_not(None))
    newest = select(RankRow.job_id, func.max(RankRow.generation).label("generation")).where(*leads).group_by(RankRow.job_id).subquery()
    return newest, and_(newest.c.job_id == RankRow.job_id, newest.c.generation == RankRow.generation)


async def failed_ranks(session: AsyncSession, job_ids: Collection[str], exception: str, since: datetime) -> Sequence[RankRow]:
    """Ranks of these jobs that have failed since then without a process, or with this exception."""
    if not job_ids:
        return []
    ended = (RankRow.state == RankState.EXITED, RankRow.outcome == "failed", RankRow.updated_at > since)
    why = or_(RankRow.pid.is_(None), RankRow.failure["exception"].as_string() == exception)
    return (await session.scalars(select(RankRow).where(RankRow.job_id.in_(job_ids), *ended, why))).all()


async def nodes_of_generations(session: AsyncSession, job_ids: Collection[str]) -> dict[str, list[frozenset[str]]]:
    """The nodes of each generation of these jobs that made a step, by job."""
    if not job_ids:
        return {}
    of_rank = and_(GenerationRow.job_id == RankRow.job_id, GenerationRow.generation == RankRow.generation)
    query = select(RankRow.job_id, RankRow.generation, RankRow.node_id).distinct().join(GenerationRow, of_rank)
    query = query.where(RankRow.job_id.in_(job_ids), GenerationRow.first_step_at.is_not(None), RankRow.parked.is_(False))
    nodes = defaultdict[str, defaultdict[int, set[str]]](lambda: defaultdict(set))
    for job_id, generation, node_id in await session.execute(query):
        nodes[job_id][generation].add(node_id)
    return {job_id: [frozenset(each) for each in generations.values()] for job_id, generations in nodes.items()}


async def resized_since(session: AsyncSession, job_ids: Collection[str], since: datetime) -> dict[str, int]:
    """How many generations of each job have ended for another size."""
    mine = (GenerationRow.job_id.in_(job_ids), GenerationRow.end_reason == EndReason.RESIZED, GenerationRow.ended_at > since)
    query = select(GenerationRow.job_id, func.count()).where(*mine).group_by(GenerationRow.job_id)
    return {str(job_id): int(count) for job_id, count in (await session.execute(query))}
