"""The lifecycle of nodes: they join, fall silent, drain and leave; their ranks are given up along with them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import nudge_after_commit
from paceline.api.core.identity import SYSTEM
from paceline.api.schemas.common import Actor
from paceline.api.services.lifecycle import events, rank_lifecycle
from paceline.api.services.lifecycle.state_change import compare_and_set
from paceline.cluster.policy.requirements import facets
from paceline.cluster.states import NODE_TRANSITIONS, NodeState, RankState, check_transition
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.training.link import FailureReport


async def bump_desired_revision(session: AsyncSession, *node_ids: str) -> None:
    """Give these nodes a new revision, since their desired assignments have changed, and nudge their channels."""
    await node_rows.raise_desired_revision(session, node_ids)
    nudge_after_commit(session, *(bus.node(node_id) for node_id in node_ids))


async def move(session: AsyncSession, node: NodeRow, to: NodeState, actor: Actor, why: str, now: datetime, **values: Any) -> None:
    """Move a node to another state. `values`: other columns that change along with it."""
    check_transition(NODE_TRANSITIONS, node.state, to)
    before = node.state
    await compare_and_set(session, node, state=to, state_since=now, **values)
    data = {"from": before.value, "to": to.value}
    await record_event(session, node, "node.state", actor, why, f"{node.name}: {before.value} -> {to.value}", now, data)
    nudge_after_commit(session, bus.SCHEDULER, bus.node(node.id))


async def set_intended_state(session: AsyncSession, node: NodeRow, to: NodeState, actor: Actor, why: str, now: datetime) -> None:
    """Set the state that an unreachable node will have once it is back. One that is to be drained is gone when it is lost,
    unless it drains for a notice and its machine comes back."""
    await compare_and_set(session, node, state_before_unreachable=to)
    await record_event(session, node, "node.intent", actor, why, f"{node.name} will be {to.value} once it is back", now)


async def set_taints(session: AsyncSession, node: NodeRow, taints: Mapping[str, str], actor: Actor, now: datetime) -> None:
    """Replace the node's taints, those that its agent was started with included."""
    await compare_and_set(session, node, taints=dict(taints))
    told = ", ".join(sorted(facets(taints))) or "none"
    await record_event(
        session, node, "node.taints", actor, f"asked for by {actor.name}", f"{node.name}: taints {told}", now, {"taints": dict(taints)}
    )
    nudge_after_commit(session, bus.SCHEDULER)


async def order_to_leave(session: AsyncSession, node: NodeRow, now: datetime) -> None:
    """Tell the agent of a drained node to leave."""
    await compare_and_set(session, node, leaving=True)
    await bump_desired_revision(session, node.id)
    await record_event(session, node, "node.leaving", SYSTEM, "no job is left on it", f"{node.name} is told to leave", now)


async def lose_ranks(session: AsyncSession, node: NodeRow, now: datetime, *, removed_by: Actor | None = None) -> int:
    """Give up every rank on this node, so that its jobs recover elsewhere; the new generation fences off processes that may still run.
    `removed_by`: who wanted the node removed, which is then no fault."""
    lost = [
        rank
        for rank in await job_rows.open_ranks_of_node(session, node.id)
        if rank.state not in (RankState.EXITED, RankState.LOST, RankState.MOVED)
    ]
    for rank in lost:
        rank_lifecycle.move(rank, RankState.LOST, now)
        if removed_by is not None:
            message = f"removed by {removed_by.name}"
            report = FailureReport(kind="node_removed", rank=rank.rank, message=message, step=rank.step, time=now.timestamp())
            rank.failure = msgspec.to_builtins(report)
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
