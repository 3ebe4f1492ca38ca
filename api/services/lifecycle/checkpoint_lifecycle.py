"""The lifecycle of checkpoints: committed, pinned, found damaged, deleted."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.schemas.common import Actor
from paceline.api.services.lifecycle import events
from paceline.api.services.lifecycle.node_lifecycle import bump_desired_revision
from paceline.api.services.lifecycle.state_change import compare_and_set
from paceline.cluster.states import CHECKPOINT_TRANSITIONS, CheckpointState, check_transition
from paceline.db.models.checkpoints import CheckpointRow


async def record(session: AsyncSession, checkpoint: CheckpointRow, actor: Actor, cause: str, now: datetime) -> None:
    """Record a new checkpoint, committed or superseded."""
    session.add(checkpoint)
    await session.flush()
    await _record_event(session, checkpoint, f"checkpoint.{checkpoint.state.value}", actor, cause, now)


async def move(
    session: AsyncSession, checkpoint: CheckpointRow, to: CheckpointState, actor: Actor, why: str, now: datetime, **values: Any
) -> None:
    check_transition(CHECKPOINT_TRANSITIONS, checkpoint.state, to)
    await compare_and_set(session, checkpoint, state=to, **values)
    if to in (CheckpointState.DELETING, CheckpointState.DELETED):
        await bump_desired_revision(session, checkpoint.node_id)
    await _record_event(session, checkpoint, f"checkpoint.{to.value}", actor, why, now)


async def pin(session: AsyncSession, checkpoint: CheckpointRow, pinned: bool, actor: Actor, now: datetime) -> None:
    await compare_and_set(session, checkpoint, pinned=pinned)
    await _record_event(
        session, checkpoint, "checkpoint.pinned" if pinned else "checkpoint.unpinned", actor, f"{actor.name} asked for it", now
    )


async def reassign_deletion(session: AsyncSession, checkpoint: CheckpointRow, node_id: str) -> None:
    """Give a deletion to another node that sees the same folder: the node that wrote it is gone."""
    await compare_and_set(session, checkpoint, node_id=node_id)
    await bump_desired_revision(session, node_id)


async def _record_event(session: AsyncSession, checkpoint: CheckpointRow, type: str, actor: Actor, cause: str, now: datetime) -> None:
    await events.record(
        session,
        type=type,
        actor=actor,
        cause=cause,
        message=f"checkpoint of step {checkpoint.step}: {type.removeprefix('checkpoint.')}",
        job_id=checkpoint.job_id,
        node_id=checkpoint.node_id,
        generation=checkpoint.generation,
        data={"checkpoint_id": checkpoint.id, "step": checkpoint.step, "state": checkpoint.state.value},
        time=now,
    )
