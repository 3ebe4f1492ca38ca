"""Nodes come, fall silent, drain and go; their ranks are given up along with them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from api.deps import nudge_after_commit
from api.schemas.common import Actor
from api.services import bus, events
from api.services.identity import SYSTEM
from api.services.state_change import compare_and_set
from cluster.states import NODE_TRANSITIONS, NodeState, RankState, check_transition
from db.models.nodes import NodeRow
from db.repositories import jobs as job_rows
from db.repositories import nodes as node_rows


async def reconsider(session: AsyncSession, *node_ids: str) -> None:
    """The desired assignments of these nodes have changed: a new revision for each, and a nudge to whoever talks to them."""
    await node_rows.raise_desired_revision(session, node_ids)
    nudge_after_commit(session, *(bus.node(node_id) for node_id in node_ids))


async def move(session: AsyncSession, node: NodeRow, to: NodeState, actor: Actor, why: str, now: datetime, **values: Any) -> None:
    """`values`: other columns that change along with the state."""
    check_transition(NODE_TRANSITIONS, node.state, to)
    before = node.state
    await compare_and_set(session, node, state=to, state_since=now, **values)
    data = {"from": before.value, "to": to.value}
    await record_event(session, node, "node.state", actor, why, f"{node.name}: {before.value} -> {to.value}", now, data)
    nudge_after_commit(session, bus.SCHEDULER, bus.node(node.id))


async def intend(session: AsyncSession, node: NodeRow, to: NodeState, actor: Actor, why: str, now: datetime) -> None:
    """What a node that is out of reach will be once it is back. One that is to be drained is gone when it is lost."""
    await compare_and_set(session, node, state_before_unreachable=to)
    await record_event(session, node, "node.intent", actor, why, f"{node.name} will be {to.value} once it is back", now)


async def dismiss(session: AsyncSession, node: NodeRow, now: datetime) -> None:
    """Drained: its agent is told to leave."""
    await compare_and_set(session, node, leaving=True)
    await reconsider(session, node.id)
    await record_event(session, node, "node.leaving", SYSTEM, "no job is left on it", f"{node.name} is told to leave", now)


async def lose_ranks(session: AsyncSession, node: NodeRow, now: datetime) -> int:
    """Give up every rank on this node, so that its jobs recover elsewhere; the new generation fences off what may still run."""
    lost = [
        rank
        for rank in await job_rows.open_ranks_of_node(session, node.id)
        if rank.state not in (RankState.EXITED, RankState.LOST, RankState.MOVED)
    ]
    for rank in lost:
        rank.state, rank.updated_at = RankState.LOST, now
    await session.flush()
    nudge_after_commit(session, bus.SCHEDULER)
    return len(lost)


async def record_event(
    session: AsyncSession,
    node: NodeRow,
    type: str,
    actor: Actor,
    cause: str,
    message: str,
    now: datetime,
    data: dict[str, Any] | None = None,
) -> None:
    await events.record(
        session,
        type=type,
        actor=actor,
        cause=cause,
        message=message,
        node_id=node.id,
        data={"state": node.state.value, **(data or {})},
        time=now,
    )
