"""The append-only history: what happened, who did it and why."""

from __future__ import annotations

from typing import Any

from paceline.api.schemas.common import Actor, Schema, Timestamp


class Event(Schema):
    seq: int
    time: Timestamp
    type: str  # job.submitted, job.state, job.intent, rank.exited, checkpoint.committed, node.state, user.created, ...
    actor: Actor
    cause: str
    message: str
    job_id: str | None = None
    node_id: str | None = None
    generation: int | None = None
    data: dict[str, Any] = {}


class EventPage(Schema):
    items: list[Event]
    next_after: int
