"""The append-only history. Written through `db.repositories.events.append` only: it keeps `seq` in commit order."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Index, or_
from sqlalchemy.orm import Mapped, mapped_column

from paceline.db.base import BigInt, ControlBase, JsonDocument, UtcDateTime, constants, partial_index


class EventRow(ControlBase):
    __tablename__ = "events"

    seq: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=True)
    time: Mapped[datetime] = mapped_column(UtcDateTime)
    type: Mapped[str]
    actor_kind: Mapped[str]
    actor_id: Mapped[str]
    actor_name: Mapped[str]
    #: Where a user's request came from, and by which browser or key: only the audit shows it.
    address: Mapped[str | None]
    via: Mapped[str | None]
    cause: Mapped[str]
    message: Mapped[str]
    job_id: Mapped[str | None]
    node_id: Mapped[str | None]
    generation: Mapped[int | None] = mapped_column(BigInt)
    data: Mapped[dict[str, Any]] = mapped_column(JsonDocument, default=dict)

    __table_args__ = (Index(None, "job_id", "seq"), Index(None, "node_id", "seq"), {"sqlite_autoincrement": True})


#: The one event of a job that is looked for by its type: what strategy auto chose.
PLANNED = "job.planned"
IS_PLANNED = EventRow.type.in_(constants(PLANNED))
partial_index("ix_events_planned", IS_PLANNED, EventRow.job_id, EventRow.seq)

#: The actor of `python -m paceline.api.admin`: whoever may read and write the coordinator's database.
ADMIN_COMMAND_ID = "admin-command"
#: What people did, which the audit shows: few among the events of jobs and nodes.
IS_BY_PEOPLE = or_(EventRow.actor_kind.in_(constants("user")), EventRow.actor_id.in_(constants(ADMIN_COMMAND_ID)))
partial_index("ix_events_by_people", IS_BY_PEOPLE, EventRow.seq)
