"""The lifecycle of launches: nodes that a provider is to start, until they have joined, and then until they are gone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import nudge_after_commit
from paceline.api.core.identity import SYSTEM
from paceline.api.schemas.common import Actor
from paceline.api.services.lifecycle import events
from paceline.api.services.lifecycle.state_change import compare_and_set
from paceline.cluster.states import LAUNCH_TRANSITIONS, OVER_LAUNCH_STATES, LaunchState, check_transition
from paceline.db.models.nodes import NodeRow
from paceline.db.models.provisioning import LaunchRow
from paceline.db.repositories import identity as identity_rows
from paceline.db.repositories import provisioning as rows


async def request(session: AsyncSession, row: LaunchRow, actor: Actor, cause: str, now: datetime) -> LaunchRow:
    """Store a new launch; the loop of launches is nudged."""
    session.add(row)
    await session.flush()
    await record(session, row, "launch.requested", actor, cause, f"{_called(row)} was asked for", now)
    nudge_after_commit(session, bus.LAUNCHES)
    return row


async def move(session: AsyncSession, row: LaunchRow, to: LaunchState, why: str, now: datetime, *, remedy: str = "", **values: Any) -> None:
    """Move a launch, whose row is locked, to another state. `values`: other columns that change along with it."""
    check_transition(LAUNCH_TRANSITIONS, row.state, to)
    before = row.state
    if to in OVER_LAUNCH_STATES:
        values["ended_at"] = now
        await identity_rows.revoke_tokens_of_launch(session, row.id)
    await compare_and_set(session, row, state=to, state_since=now, reason=why, remedy=remedy, failures=0, next_look_at=now, **values)
    message = f"{_called(row)}: {before.value} -> {to.value}{f': {why}' if why else ''}"
    await record(session, row, "launch.state", SYSTEM, why or "its provider says so", message, now, {"from": before.value, "to": to.value})
    nudge_after_commit(session, bus.LAUNCHES)


async def note(session: AsyncSession, row: LaunchRow, now: datetime, seconds: float, **values: Any) -> None:
    """Change what is known of a launch in its present state, and look at it again in `seconds`."""
    await compare_and_set(session, row, next_look_at=now + timedelta(seconds=seconds), **values)


async def join(session: AsyncSession, row: LaunchRow, node: NodeRow, now: datetime) -> None:
    """Note that the node of a launch, whose row is locked, has joined: now, or once more."""
    node.provider, node.pool, node.handle = row.provider, row.pool, row.handle
    if row.state is LaunchState.JOINED:
        await note(session, row, now, 0.0, node_id=node.id)
    else:
        await move(session, row, LaunchState.JOINED, "", now, node_id=node.id)


async def drop_wish(session: AsyncSession, row: LaunchRow, actor: Actor, why: str, now: datetime) -> None:
    """Note that a launch, whose row is locked, is wanted no more: it is ended at its provider once its node has left."""
    if not row.wanted:
        return
    await note(session, row, now, 0.0, wanted=False)
    await record(session, row, "launch.unwanted", actor, why, f"{_called(row)} is wanted no more", now)
    nudge_after_commit(session, bus.LAUNCHES)


async def drop_wish_for_node(session: AsyncSession, node: NodeRow, actor: Actor, why: str, now: datetime) -> None:
    """Note that a node is wanted no more, if a provider has started it."""
    if node.provider != "manual" or node.pool is not None:
        launch = await rows.launch_of_node(session, node.id)
        if launch is not None:
            await drop_wish(session, launch, actor, why, now)


async def renew_wish_for_node(session: AsyncSession, node: NodeRow, actor: Actor, now: datetime) -> None:
    """Take back that a node is wanted no more, as long as its provider was not asked to end it."""
    launch = await rows.launch_of_node(session, node.id)
    if launch is not None and not launch.wanted and launch.state is LaunchState.JOINED:
        await note(session, launch, now, 0.0, wanted=True)
        await record(session, launch, "launch.wanted", actor, f"uncordoned by {actor.name}", f"{_called(launch)} is wanted again", now)


async def record(
    session: AsyncSession,
    row: LaunchRow,
    type: str,
    actor: Actor,
    cause: str,
    message: str,
    now: datetime,
    data: dict[str, Any] | None = None,
) -> None:
    """Write an event of a launch."""
    known = {"launch": row.id, "name": row.name, "pool": row.pool, "provider": row.provider, "state": row.state.value}
    await events.record(
        session, type=type, actor=actor, cause=cause, message=message, node_id=row.node_id, data=known | (data or {}), time=now
    )


def _called(row: LaunchRow) -> str:
    return f"{row.name} ({row.provider}{f', pool {row.pool}' if row.pool else ''})"
