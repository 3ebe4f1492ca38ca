"""Signs of life from agents, written into the nodes' rows: a hello at once, heartbeats of all nodes in groups.

`hello`, `leave` and `note_closed` are work for `node_writer`: the row of the node is locked already.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.background import in_background
from paceline.api.core.context import Services, nudge_after_commit
from paceline.api.core.identity import node_actor
from paceline.api.services.lifecycle import node_lifecycle
from paceline.api.services.nodes import notices
from paceline.cluster.protocol import AgentHello, Heartbeat
from paceline.cluster.states import NodeState
from paceline.db.errors import DatabaseError
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import nodes as node_rows

logger = logging.getLogger(__name__)
#: A heartbeat is at most this much older in the row than it is: far below what makes a node unreachable, at any replica.
SECONDS_BETWEEN_WRITES = 0.5
#: A heartbeat that was held up makes its node's clock look late, and none makes it look early: the one of these that says the least is the
#: one that took the shortest way.
SKEW_HEARTBEATS = 60
_PRESENT = frozenset({NodeState.READY, NodeState.CORDONED, NodeState.DRAINING})
_AWAY = frozenset({NodeState.JOINING, NodeState.UNREACHABLE, NodeState.LOST})


async def hello(session: AsyncSession, node_id: str, channel_id: str, message: AgentHello, now: datetime) -> NodeRow | None:
    """Make this channel the one that speaks for the node; an earlier one, in any replica, is nudged to find that out. None when the node
    is gone for good."""
    node = await node_rows.get(session, node_id)
    if node is None or node.state is NodeState.GONE:
        return None
    restarted = node.boot_id != message.boot_id
    returned_to = notices.state_on_return(node) if restarted else None
    node.address, node.store_port = message.address, message.store_port
    node.device, node.slots = message.inventory.device, message.inventory.slots
    node.inventory = msgspec.to_builtins(message.inventory) | ({} if restarted else notices.kept(node))
    node.boot_id = message.boot_id
    node.heartbeat_at, node.channel_id = now, channel_id
    await session.flush()
    nudge_after_commit(session, bus.node(node_id))
    if restarted:
        text = f"agent {message.agent_version} started on {node.name}"
        await node_lifecycle.record_event(session, node, "node.agent_started", node_actor(node), "hello", text, now)
    if returned_to is not None:
        await notices.end_drain(session, node, returned_to, now)
    await _restore_state(session, node, now)
    return node


@dataclass(frozen=True)
class NodeHeartbeat:
    message: Heartbeat
    heard_at: datetime
    clock_skew: float

    def columns(self, node_id: str) -> dict[str, Any]:
        sample: dict[str, Any] = msgspec.to_builtins(self.message, str_keys=True)
        if not self.message.host.memory_total_bytes:
            sample["host"] = None  # the agent could not read its machine
        return {
            "node_id": node_id,
            "heartbeat_at": self.heard_at,
            "clock_skew": self.clock_skew,
            "backlog": self.message.backlog_records,
            "last_sample": {name: sample[name] for name in ("host", "gpus", "gpu_error")},
        }


@dataclass
class Heartbeats:
    """The newest heartbeat of each node, kept in memory and written for all of them at once: a thousand agents cost as many
    transactions as one does."""

    services: Services
    _newest: dict[str, NodeHeartbeat] = field(default_factory=dict)
    _skews: dict[str, deque[float]] = field(default_factory=dict)
    #: Nodes that have left since the last write began.
    _left: set[str] = field(default_factory=set)
    _work: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, node_id: str, message: Heartbeat, now: datetime) -> None:
        skews = self._skews.setdefault(node_id, deque(maxlen=SKEW_HEARTBEATS))
        skews.append(message.time - now.timestamp())
        self._newest[node_id] = NodeHeartbeat(message, now, max(skews))
        self._left.discard(node_id)
        self._work.set()

    def forget(self, node_id: str) -> None:
        """Forget the heartbeat of a node that leaves: one that is not written yet, or is being written, must not bring it back."""
        self._left.add(node_id)
        self._newest.pop(node_id, None)
        self._skews.pop(node_id, None)

    def running(self) -> AbstractAsyncContextManager[None]:
        return in_background("heartbeats", self._run)

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            try:
                await self.flush()
            except (SQLAlchemyError, DatabaseError) as error:
                logger.warning("heartbeats were not written, and are tried again: %s", error)
            await asyncio.sleep(SECONDS_BETWEEN_WRITES)

    async def flush(self) -> None:
        """Write the heartbeats since the last call. Those that fail stay, unless newer ones have come: a node must not look silent
        because a write failed."""
        self._work.clear()
        self._left.clear()
        newest, self._newest = self._newest, {}
        if not newest:
            return
        try:
            await self._write_each_if_need_be(newest)
        except BaseException:
            self._newest = {node_id: beat for node_id, beat in newest.items() if node_id not in self._left} | self._newest
            self._work.set()
            raise

    async def _write_each_if_need_be(self, newest: Mapping[str, NodeHeartbeat]) -> None:
        """Write one by one where the database is well and the group cannot be written: the heartbeat at fault is dropped, alone."""
        try:
            await self._write(newest)
        except DatabaseError:
            raise
        except Exception as error:  # noqa: BLE001 - told below, once the one at fault is found
            if len(newest) == 1:
                logger.warning("a heartbeat of node %s cannot be stored, and is dropped: %r", *newest, error)
                return
            for node_id, beat in newest.items():
                await self._write_each_if_need_be({node_id: beat})

    async def _write(self, newest: Mapping[str, NodeHeartbeat]) -> None:
        async with self.services.write() as session:
            await node_rows.note_heartbeats(session, [newest[node_id].columns(node_id) for node_id in sorted(newest)])
            away = await node_rows.in_states(session, _AWAY)
        for node_id in sorted(away & newest.keys()):
            await self._mark_ready_again(node_id, newest[node_id].heard_at)

    async def _mark_ready_again(self, node_id: str, now: datetime) -> None:
        async with self.services.write() as session:
            node = await node_rows.get_locked(session, node_id)
            if node is not None and node_id not in self._left:
                await _restore_state(session, node, now)


async def leave(session: AsyncSession, node_id: str, channel_id: str, now: datetime) -> None:
    """Note that the agent ends in good order: nothing is placed on its node until it is back. The agent still reports how its ranks end,
    and repeats this for as long as they take to save."""
    node = await node_rows.get(session, node_id)
    if node is None or node.channel_id != channel_id:
        return
    node.heartbeat_at = now
    await session.flush()
    if node.state not in _PRESENT:
        return
    returning = notices.state_on_return(node)
    if returning is not None:
        await notices.keep_place(session, node, returning, node_actor(node), now)
        return
    why = "its agent was told to end"
    await node_lifecycle.move(session, node, NodeState.UNREACHABLE, node_actor(node), why, now, state_before_unreachable=node.state)


async def note_closed(session: AsyncSession, node_id: str, channel_id: str, now: datetime) -> None:
    """Note that the channel has closed. Unless there is a newer one the node has no channel; only a node that was told to leave is gone
    by that."""
    node = await node_rows.get(session, node_id)
    if node is None or node.channel_id != channel_id:
        return
    node.channel_id = None
    await session.flush()
    nudge_after_commit(session, bus.SCHEDULER)
    returning = notices.state_on_return(node)
    if node.leaving and returning is not None and node.state is NodeState.DRAINING:
        await notices.keep_place(session, node, returning, node_actor(node), now)
    elif node.leaving and node.state is not NodeState.GONE:
        await node_lifecycle.move(session, node, NodeState.GONE, node_actor(node), "drained, and its agent has left", now)


async def _restore_state(session: AsyncSession, node: NodeRow, now: datetime) -> None:
    """Move a node that was away, or is joining, back to its former state."""
    if node.state in _AWAY:
        to = node.state_before_unreachable or NodeState.READY
        why = "its agent has connected" if node.state is NodeState.JOINING else "it is heard from again"
        await node_lifecycle.move(session, node, to, node_actor(node), why, now, state_before_unreachable=None)
