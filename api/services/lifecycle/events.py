"""Writing and reading the history. Every change of state records one event in its own transaction, with actor and cause."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import nudge_after_commit
from paceline.api.schemas.audit import AuditEntry
from paceline.api.schemas.common import Actor, RequestActor
from paceline.api.schemas.events import Event
from paceline.db.models.events import EventRow
from paceline.db.repositories import events as repository


async def record(
    session: AsyncSession,
    *,
    type: str,
    actor: Actor,
    cause: str,
    message: str,
    job_id: str | None = None,
    node_id: str | None = None,
    generation: int | None = None,
    data: dict[str, Any] | None = None,
    time: datetime | None = None,
) -> EventRow:
    """Append one event to this transaction, which gives it its `seq` when it is flushed; readers of the history are nudged when it
    commits."""
    origin = actor if isinstance(actor, RequestActor) else None
    row = EventRow(
        time=time or datetime.now(UTC),
        type=type,
        actor_kind=actor.kind,
        actor_id=actor.id,
        actor_name=actor.name,
        address=origin and origin.address,
        via=origin and origin.via,
        cause=cause,
        message=message,
        job_id=job_id,
        node_id=node_id,
        generation=generation,
        data=data or {},
    )
    nudge_after_commit(session, bus.EVENTS)
    await repository.append(session, row)
    return row


def describe(row: EventRow) -> Event:
    actor = Actor.model_validate({"kind": row.actor_kind, "id": row.actor_id, "name": row.actor_name})
    return Event(
        seq=row.seq,
        time=row.time,
        type=row.type,
        actor=actor,
        cause=row.cause,
        message=row.message,
        job_id=row.job_id,
        node_id=row.node_id,
        generation=row.generation,
        data=row.data,
    )


def audited(row: EventRow) -> AuditEntry:
    """An event as the audit shows it."""
    return AuditEntry(
        seq=row.seq,
        time=row.time,
        user_id=row.actor_id,
        user_name=row.actor_name,
        action=row.type,
        message=row.message,
        address=row.address,
        via=row.via,
        job_id=row.job_id,
        node_id=row.node_id,
    )
