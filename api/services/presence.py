"""Signs of life from agents, brought into the nodes' rows: a hello at once, heartbeats of all nodes in groups.

`hello`, `leave` and `farewell` are work for `node_writer`: the row of the node is locked already.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from api.deps import Services, nudge_after_commit
from api.services import bus, node_lifecycle
from api.services.background import in_background
from api.services.identity import node_actor
from cluster.protocol import Heartbeat, Hello
from cluster.states import NodeState
from db.errors import DatabaseError
from db.models.nodes import NodeRow
from db.repositories import nodes as node_rows

logger = logging.getLogger(__name__)
#: A heartbeat is at most this much older in the row than it is: far below what makes a node unreachable, at any replica.
SECONDS_BETWEEN_WRITES = 0.5
_PRESENT = frozenset({NodeState.READY, NodeState.CORDONED, NodeState.DRAINING})
_AWAY = frozenset({NodeState.JOINING, NodeState.UNREACHABLE, NodeState.LOST})


async def hello(session: AsyncSession, node_id: str, channel_id: str, message: Hello, now: datetime) -> NodeRow | None:
    """From now on this channel speaks for the node; an earlier one, in whichever replica, is nudged to find that out. None when
    the node is gone for good."""
    node = await node_rows.get(session, node_id)
    if node is None or node.state is NodeState.GONE:
        return None
    restarted = node.boot_id != message.boot_id
    node.address, node.store_port = message.address, message.store_port
    node.device, node.slots = message.inventory.device, message.inventory.slots
    node.inventory, node.boot_id = msgspec.to_builtins(message.inventory), message.boot_id
    node.heartbeat_at, node.channel_id = now, channel_id
    await session.flush()
    nudge_after_commit(session, bus.node(node_id))
    if restarted:
        text = f"agent {message.agent_version} started on {node.name}"
        await node_lifecycle.record_event(session, node, "node.agent_started", node_actor(node), "hello", text, now)
    await _welcome_back(session, node, now)
    return node


@dataclass(frozen=True)
class Beat:
    message: Heartbeat
    heard_at: datetime

    def columns(self, node_id: str) -> dict[str, Any]:
        sample: dict[str, Any] = msgspec.to_builtins(self.message, str_keys=True)
        return {
            "node_id": node_id,
            "heartbeat_at": self.heard_at,
            "clock_skew": self.message.time - self.heard_at.timestamp(),
            "backlog": self.message.backlog_records,
            "last_sample": {name: sample[name] for name in ("host", "gpus", "gpu_error")},
        }


@dataclass
class Heartbeats:
    """The newest heartbeat of each node, kept in memory and written for all of them at once: a thousand agents cost as many
    transactions as one does."""

    services: Services
    _newest: dict[str, Beat] = field(default_factory=dict)
    _work: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, node_id: str, message: Heartbeat, now: datetime) -> None:
        self._newest[node_id] = Beat(message, now)
        self._work.set()

    def forget(self, node_id: str) -> None:
        """The node leaves: a heartbeat that is not written yet must not bring it back."""
        self._newest.pop(node_id, None)

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
        """Write what has come since the last time. What fails stays, unless something newer has come: a node must not look silent
        because we could not write."""
        self._work.clear()
        newest, self._newest = self._newest, {}
        if not newest:
            return
        try:
            await self._write_each_if_need_be(newest)
        except BaseException:
            self._newest = newest | self._newest
            self._work.set()
            raise

    async def _write_each_if_need_be(self, newest: Mapping[str, Beat]) -> None:
        """Where the database is well and the group cannot be written, one of them is to blame: it is dropped, alone."""
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

    async def _write(self, newest: Mapping[str, Beat]) -> None:
        async with self.services.write() as session:
            await node_rows.note_heartbeats(session, [newest[node_id].columns(node_id) for node_id in sorted(newest)])
            away = await node_rows.in_states(session, _AWAY)
        for node_id in sorted(away & newest.keys()):
            await self._bring_back(node_id, newest[node_id].heard_at)

    async def _bring_back(self, node_id: str, now: datetime) -> None:
        async with self.services.write() as session:
            node = await node_rows.get_locked(session, node_id)
            if node is not None:
                await _welcome_back(session, node, now)


async def leave(session: AsyncSession, node_id: str, channel_id: str, now: datetime) -> None:
    """The agent ends in good order: nothing is placed on its node until it is back. It still tells how its ranks end, and says this again
    for as long as they take to save."""
    node = await node_rows.get(session, node_id)
    if node is None or node.channel_id != channel_id:
        return
    node.heartbeat_at = now
    await session.flush()
    if node.state not in _PRESENT:
        return
    why = "its agent was told to end"
    await node_lifecycle.move(session, node, NodeState.UNREACHABLE, node_actor(node), why, now, state_before_unreachable=node.state)


async def farewell(session: AsyncSession, node_id: str, channel_id: str, now: datetime) -> None:
    """The channel has closed, and unless there is a newer one nobody speaks for the node. Only one that was told to leave is gone by that."""
    node = await node_rows.get(session, node_id)
    if node is None or node.channel_id != channel_id:
        return
    node.channel_id = None
    await session.flush()
    nudge_after_commit(session, bus.SCHEDULER)
    if node.leaving and node.state is not NodeState.GONE:
        await node_lifecycle.move(session, node, NodeState.GONE, node_actor(node), "drained, and its agent has left", now)


async def _welcome_back(session: AsyncSession, node: NodeRow, now: datetime) -> None:
    if node.state in _AWAY:
        to = node.state_before_unreachable or NodeState.READY
        why = "its agent has connected" if node.state is NodeState.JOINING else "it is heard from again"
        await node_lifecycle.move(session, node, to, node_actor(node), why, now, state_before_unreachable=None)
