"""Queries about the slots in use, and the ranks that hold them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import select, true
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.cluster.states import RankState
from paceline.db.models.jobs import HOLDING, GenerationRow, JobRow, RankRow
from paceline.db.models.nodes import NodeRow


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


def by_node(holders: Sequence[SlotHolder]) -> Mapping[str, Sequence[SlotHolder]]:
    """The holders of each node's slots, by its id; of any other node, none."""
    found: defaultdict[str, list[SlotHolder]] = defaultdict(list)
    for each in holders:
        found[each.node_id].append(each)
    return found


async def card_holders(session: AsyncSession) -> Sequence[tuple[RankRow, GenerationRow, NodeRow, JobRow]]:
    """Every rank that holds a card, with its generation, node and job."""
    query = (
        select(RankRow, GenerationRow, NodeRow, JobRow)
        .join(GenerationRow, (GenerationRow.job_id == RankRow.job_id) & (GenerationRow.generation == RankRow.generation))
        .join(NodeRow, NodeRow.id == RankRow.node_id)
        .join(JobRow, JobRow.id == RankRow.job_id)
        .where(HOLDING, RankRow.card.is_not(None))
        .order_by(RankRow.node_id, RankRow.slot)
    )
    return [(rank, generation, node, job) for rank, generation, node, job in await session.execute(query)]


async def held_slots(session: AsyncSession, node_ids: Collection[str]) -> set[tuple[str, int]]:
    """(node, slot) of every slot in use on these nodes, as in `holders`."""
    query = select(RankRow.node_id, RankRow.slot).where(HOLDING, RankRow.node_id.in_(node_ids))
    return {(node_id, slot) for node_id, slot in await session.execute(query)}
