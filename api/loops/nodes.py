"""Watches over nodes: silent ones become unreachable, then lost; drained ones leave.

Failing to hear from a node is no evidence that it failed: after this loop's own start, or a stall of it, every node gets a
fresh term before anything is held against it. So it is when the clock was set back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.core.troubles import Subject
from paceline.api.core.uptime import Uptime
from paceline.api.services.lifecycle import node_lifecycle
from paceline.api.services.lifecycle.isolation import PhaseTurns
from paceline.api.services.nodes import notices
from paceline.cluster.states import NodeState
from paceline.cluster.waiting import AHEAD, waited
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories.nodes import Silence

UNREACHABLE_SECONDS = 10.0
LOST_SECONDS = 45.0
#: A node that redeemed its join token but never said hello.
JOIN_SECONDS = 3600.0
INTERVAL_SECONDS = 1.0
#: How long a node of each state may be silent before anything follows from it; for the others, UNREACHABLE_SECONDS.
_PATIENCE = {NodeState.JOINING: JOIN_SECONDS, NodeState.DRAINING: 0.0, NodeState.UNREACHABLE: LOST_SECONDS}


@dataclass
class NodeWatch:
    services: Services
    #: How long this loop has run: no silence is counted from before its start, or before the end of its last stall.
    uptime: Uptime = field(default_factory=Uptime)

    async def step_once(self, now: datetime) -> None:
        self.uptime.note(now)
        async with self.services.control.read() as session:
            silent_since = await node_rows.silent_since(session, now - timedelta(seconds=UNREACHABLE_SECONDS), now + AHEAD)
        node_ids = [each.node_id for each in silent_since if self._needs_attention(each, now)]
        turns = PhaseTurns(self.services, "watch over it", now)
        for node_id in node_ids:
            await turns.take(Subject("node", node_id), partial(self._advance_node, node_id, now))
        self.services.troubles.forget_all_but(turns.task, node_ids)

    async def _advance_node(self, node_id: str, now: datetime) -> None:
        async with self.services.write() as session:
            node = await node_rows.get_locked(session, node_id)
            if node is not None and node.state is not NodeState.GONE:
                await _carry_out(session, node, self._silence(node, now), now)

    def _needs_attention(self, node: Silence, now: datetime) -> bool:
        """Whether there may be something to do: nodes that are well, and those that are known to be silent, cost no transaction."""
        if node.state is NodeState.LOST:
            return node.state_before_unreachable is NodeState.DRAINING
        return self._silence(node, now) >= _PATIENCE.get(node.state, UNREACHABLE_SECONDS)

    def _silence(self, node: NodeRow | Silence, now: datetime) -> float:
        """Seconds in which a heartbeat of the node could have arrived, and did not. A moment from before the clock was set back counts for
        nothing."""
        signs = [moment for moment in (node.heartbeat_at, node.joined_at) if moment is not None]
        return min(waited(sign, self.uptime.since, now) for sign in signs).total_seconds()


async def _carry_out(session: AsyncSession, node: NodeRow, silence: float, now: datetime) -> None:
    rule = _RULES.get(node.state)
    if rule is not None:
        await rule(session, node, silence, now)


async def _joining(session: AsyncSession, node: NodeRow, silence: float, now: datetime) -> None:
    if silence >= JOIN_SECONDS:
        await node_lifecycle.move(session, node, NodeState.GONE, SYSTEM, f"it has not connected within {JOIN_SECONDS:.0f} s", now)


async def _present(session: AsyncSession, node: NodeRow, silence: float, now: datetime) -> None:
    if silence >= UNREACHABLE_SECONDS:
        why = f"no heartbeat for {silence:.0f} s; nothing new is placed on it"
        await node_lifecycle.move(session, node, NodeState.UNREACHABLE, SYSTEM, why, now, state_before_unreachable=node.state)


async def _draining(session: AsyncSession, node: NodeRow, silence: float, now: datetime) -> None:
    returning = notices.state_on_return(node)
    if node.leaving and silence >= UNREACHABLE_SECONDS and returning is not None:
        await notices.keep_place(session, node, returning, SYSTEM, now)
    elif node.leaving and silence >= UNREACHABLE_SECONDS:
        await node_lifecycle.move(session, node, NodeState.GONE, SYSTEM, "drained, and its agent has left", now)
    elif silence >= UNREACHABLE_SECONDS:
        await _present(session, node, silence, now)
    elif not node.leaving and not await job_rows.open_ranks_of_node(session, node.id):
        await node_lifecycle.order_to_leave(session, node, now)


async def _unreachable(session: AsyncSession, node: NodeRow, silence: float, now: datetime) -> None:
    if silence >= LOST_SECONDS:
        lost = await node_lifecycle.lose_ranks(session, node, now)
        why = f"no heartbeat for {silence:.0f} s; {lost} rank(s) on it are given up"
        await node_lifecycle.move(session, node, NodeState.LOST, SYSTEM, why, now, state_before_unreachable=_state_once_back(node))


def _state_once_back(node: NodeRow) -> NodeState | None:
    """The state that a lost node will have once it is back. One that drained for a notice, and whose machine comes back, has drained."""
    before, returning = node.state_before_unreachable, notices.state_on_return(node)
    return returning if before is NodeState.DRAINING and returning is not None else before


async def _lost(session: AsyncSession, node: NodeRow, silence: float, now: datetime) -> None:
    if node.state_before_unreachable is NodeState.DRAINING:
        await node_lifecycle.move(session, node, NodeState.GONE, SYSTEM, "it was to be removed, and is lost", now)


_RULES: dict[NodeState, Callable[[AsyncSession, NodeRow, float, datetime], Awaitable[None]]] = {
    NodeState.JOINING: _joining,
    NodeState.READY: _present,
    NodeState.CORDONED: _present,
    NodeState.DRAINING: _draining,
    NodeState.UNREACHABLE: _unreachable,
    NodeState.LOST: _lost,
}
