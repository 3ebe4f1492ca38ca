"""The append-only history. Written through `db.repositories.events.append` only: it keeps `seq` in commit order."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from db.base import BigInt, ControlBase, JsonDocument, UtcDateTime


class EventRow(ControlBase):
    __tablename__ = "events"

    seq: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=True)
    time: Mapped[datetime] = mapped_column(UtcDateTime)
    type: Mapped[str]
    actor_kind: Mapped[str]
    actor_id: Mapped[str]
    actor_name: Mapped[str]
    cause: Mapped[str]
    message: Mapped[str]
    job_id: Mapped[str | None]
    node_id: Mapped[str | None]
    generation: Mapped[int | None] = mapped_column(BigInt)
    data: Mapped[dict[str, Any]] = mapped_column(JsonDocument, default=dict)

    __table_args__ = (Index(None, "job_id", "seq"), Index(None, "node_id", "seq"), {"sqlite_autoincrement": True})
