"""Queries about nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from cluster.states import NodeState
from db.models.nodes import NodeRow


async def get(session: AsyncSession, node_id: str) -> NodeRow | None:
    return await session.get(NodeRow, node_id)


async def get_locked(session: AsyncSession, node_id: str) -> NodeRow | None:
    """For a transaction that will change the node, or that reads its assignments and its revision as one."""
    return await session.get(NodeRow, node_id, with_for_update={"key_share": True}, populate_existing=True)


async def lock(session: AsyncSession, node_ids: Collection[str]) -> None:
    """Until the commit no report of these nodes is brought into the rows. In id order, so that two transactions never wait for each other."""
    query = select(NodeRow.id).where(NodeRow.id.in_(node_ids)).order_by(NodeRow.id).with_for_update(key_share=True)
    await session.execute(query)


async def page(session: AsyncSession, states: Collection[NodeState], after: tuple[str, str] | None, limit: int) -> Sequence[NodeRow]:
    """By name. Without `states`: all but the gone ones."""
    wanted = states or set(NodeState) - {NodeState.GONE}
    query = select(NodeRow).where(NodeRow.state.in_(wanted)).order_by(NodeRow.name, NodeRow.id).limit(limit)
    if after is not None:
        name, node_id = after
        query = query.where((NodeRow.name > name) | ((NodeRow.name == name) & (NodeRow.id > node_id)))
    return (await session.scalars(query)).all()


async def present(session: AsyncSession) -> Sequence[NodeRow]:
    return (await session.scalars(select(NodeRow).where(NodeRow.state != NodeState.GONE).order_by(NodeRow.name))).all()


async def silent(session: AsyncSession) -> set[str]:
    """Nodes whose agent is not connected to any replica."""
    return set(await session.scalars(select(NodeRow.id).where(NodeRow.channel_id.is_(None))))


async def draining(session: AsyncSession) -> set[str]:
    return set(await session.scalars(select(NodeRow.id).where(NodeRow.state == NodeState.DRAINING)))


async def named(session: AsyncSession, node_ids: Collection[str]) -> dict[str, str]:
    """Names by id, of gone nodes too."""
    if not node_ids:
        return {}
    query = select(NodeRow.id, NodeRow.name).where(NodeRow.id.in_(node_ids))
    return dict((await session.execute(query)).all())


async def raise_desired_revision(session: AsyncSession, node_ids: Collection[str]) -> None:
    """In id order, so that two transactions never wait for each other."""
    for node_id in sorted(node_ids):
        statement = update(NodeRow).where(NodeRow.id == node_id).values(desired_revision=NodeRow.desired_revision + 1)
        await session.execute(statement.execution_options(synchronize_session=False))


async def count_by_state(session: AsyncSession) -> dict[str, int]:
    query = select(NodeRow.state, func.count()).where(NodeRow.state != NodeState.GONE).group_by(NodeRow.state)
    return {state.value: count for state, count in (await session.execute(query))}
