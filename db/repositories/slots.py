"""Queries about the slots in use, and the ranks that hold them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import func, select, true, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.cluster.states import RankState
from paceline.db.models.jobs import HOLDING, GenerationRow, JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows


class SlotHolder(NamedTuple):
    """A rank that holds a slot."""

    node_id: str
    slot: int
    rank: int
    state: RankState
    job_id: str
    job_name: str


async def holders(session: AsyncSession, node_id: str | None = None) -> Sequence[SlotHolder]:
    """The holder of every slot in use, or of those of one node: a lost rank holds its slot until its node confirms that it is gone."""
    query = (
        select(RankRow.node_id, RankRow.slot, RankRow.rank, RankRow.state, RankRow.job_id, JobRow.name)
        .join(JobRow, JobRow.id == RankRow.job_id)
        .where(HOLDING, RankRow.node_id == node_id if node_id else true())
        .order_by(RankRow.node_id, RankRow.slot)
    )
    return [SlotHolder(*row) for row in await session.execute(query)]


async def used_by_node(session: AsyncSession) -> dict[str, int]:
    """The number of slots in use of each node that has any."""
    query = select(RankRow.node_id, func.count()).where(HOLDING).group_by(RankRow.node_id)
    return dict((await session.execute(query)).all())


def by_node(holders: Sequence[SlotHolder]) -> Mapping[str, Sequence[SlotHolder]]:
    """The holders of each node's slots, by its id; of any other node, none."""
    found: defaultdict[str, list[SlotHolder]] = defaultdict(list)
    for each in holders:
        found[each.node_id].append(each)
    return found


async def card_holders(session: AsyncSession) -> Sequence[tuple[RankRow, GenerationRow, NodeRow, JobRow]]:
    """Every rank that holds a card, with its generation, node and job."""
    query = select(RankRow).where(HOLDING, RankRow.card.is_not(None)).order_by(RankRow.node_id, RankRow.slot)
    ranks = (await session.scalars(query)).all()
    nodes = await node_rows.by_id(session, {rank.node_id for rank in ranks})
    jobs = await job_rows.by_id(session, {rank.job_id for rank in ranks})
    held = {(rank.job_id, rank.generation) for rank in ranks}
    rows = await session.scalars(select(GenerationRow).where(tuple_(GenerationRow.job_id, GenerationRow.generation).in_(held)))
    generations = {(row.job_id, row.generation): row for row in rows}
    return [(rank, generations[rank.job_id, rank.generation], nodes[rank.node_id], jobs[rank.job_id]) for rank in ranks]


async def held_slots(session: AsyncSession, node_ids: Collection[str]) -> set[tuple[str, int]]:
    """(node, slot) of every slot in use on these nodes, as in `holders`."""
    query = select(RankRow.node_id, RankRow.slot).where(HOLDING, RankRow.node_id.in_(node_ids))
    return {(node_id, slot) for node_id, slot in await session.execute(query)}
