"""Notices: an agent says that its machine will be taken away. The node is drained before; one that comes back keeps its place.

The notice is kept in the node's inventory, which the hello of an agent that was started anew replaces: a machine that came back has none,
and drains no more (`end_drain`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.identity import node_actor
from paceline.api.schemas.common import Actor
from paceline.api.services.lifecycle import node_lifecycle
from paceline.cluster.protocol import Notice
from paceline.cluster.states import NodeState
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import nodes as node_rows

KEY = "notice"
_DRAINABLE = frozenset({NodeState.READY, NodeState.CORDONED})


async def take(session: AsyncSession, node_id: str, channel_id: str, notice: Notice, now: datetime) -> None:
    """Drain the node of this channel: its jobs shrink, or save and wait for other slots. A repeated notice changes nothing, and a node that is
    being removed already stays so."""
    node = await node_rows.get(session, node_id)
    if node is None or node.channel_id != channel_id:
        return
    given = notice_of(node)
    if node.state not in _DRAINABLE and given is None:
        return
    before = given["before"] if given else node.state.value
    node.inventory = {**(node.inventory or {}), KEY: {**msgspec.to_builtins(notice), "before": before}}
    await session.flush()
    if node.state in _DRAINABLE:
        await node_lifecycle.move(session, node, NodeState.DRAINING, node_actor(node), described(notice, now), now)


def notice_of(node: NodeRow) -> dict[str, Any] | None:
    """The notice that the node drains for, as it was stored; None: there is none."""
    found: dict[str, Any] | None = (node.inventory or {}).get(KEY)
    return found


def kept(node: NodeRow) -> dict[str, Any]:
    """The part of the node's inventory that an agent which has connected again does not replace."""
    given = notice_of(node)
    return {} if given is None else {KEY: given}


def described(notice: Notice, now: datetime) -> str:
    """The notice in words, for an event."""
    left = max(0.0, notice.ends_at - now.timestamp())
    at = datetime.fromtimestamp(notice.ends_at, UTC)
    back = "; the node is kept until it is back" if notice.returns else ""
    return f"{notice.reason}; its machine will be taken away in {left:.0f} s, at {at:%H:%M:%S} UTC{back}"


def state_on_return(node: NodeRow) -> NodeState | None:
    """The state that the node will have once its machine is back; None: it drains for good, or does not drain for a notice."""
    given = notice_of(node)
    return NodeState(given["before"]) if given and given["returns"] else None


async def forget(session: AsyncSession, node: NodeRow) -> None:
    """Forget the notice, since a person has decided otherwise about the node."""
    if notice_of(node) is not None:
        node.inventory = {key: value for key, value in (node.inventory or {}).items() if key != KEY}
        await session.flush()


async def keep_place(session: AsyncSession, node: NodeRow, to: NodeState, actor: Actor, now: datetime) -> None:
    """Keep the place of a drained node whose machine comes back: it is unreachable until then."""
    why = "drained, and its machine comes back"
    await node_lifecycle.move(session, node, NodeState.UNREACHABLE, actor, why, now, state_before_unreachable=to, leaving=False)


async def end_drain(session: AsyncSession, node: NodeRow, to: NodeState, now: datetime) -> None:
    """Give a node whose machine is back the state that it had before the notice. It may have gone before all its ranks had left it."""
    if NodeState.DRAINING in (node.state, node.state_before_unreachable):
        why = "its machine is back"
        await node_lifecycle.move(session, node, to, node_actor(node), why, now, state_before_unreachable=None, leaving=False)
