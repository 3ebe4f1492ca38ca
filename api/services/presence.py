"""Signs of life from agents: hello and heartbeat, brought into the node's row."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncSession

from api.deps import nudge_after_commit
from api.services import bus, node_lifecycle
from api.services.identity import node_actor
from cluster.protocol import Heartbeat, Hello
from cluster.states import NodeState
from db.models.nodes import NodeRow
from db.repositories import nodes as node_rows

_AWAY = frozenset({NodeState.JOINING, NodeState.UNREACHABLE, NodeState.LOST})


async def hello(session: AsyncSession, node_id: str, channel_id: str, message: Hello, now: datetime) -> NodeRow | None:
    """From now on this channel speaks for the node; an earlier one, in whichever replica, is nudged to find that out. None when
    the node is gone for good."""
    node = await node_rows.get_locked(session, node_id)
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


async def heartbeat(session: AsyncSession, node_id: str, message: Heartbeat, now: datetime) -> None:
    node = await node_rows.get_locked(session, node_id)
    if node is None or node.state is NodeState.GONE:
        return
    sample: dict[str, Any] = msgspec.to_builtins(message, str_keys=True)
    values = {
        "heartbeat_at": now,
        "clock_skew": message.time - now.timestamp(),
        "backlog": message.backlog_records,
        "last_sample": {name: sample[name] for name in ("host", "gpus", "gpu_error")},
    }
    await session.execute(update(NodeRow).where(NodeRow.id == node_id).values(**values))
    await _welcome_back(session, node, now)


async def speaks_for(session: AsyncSession, channel_id: str, node_id: str) -> bool:
    """Whether no later channel has said hello; none does before this transaction ends."""
    node = await node_rows.get_locked(session, node_id)
    return node is not None and node.channel_id == channel_id


async def farewell(session: AsyncSession, node_id: str, channel_id: str, now: datetime) -> None:
    """The channel has closed, and unless there is a newer one nobody speaks for the node. Only one that was told to leave is gone by that."""
    node = await node_rows.get_locked(session, node_id)
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
