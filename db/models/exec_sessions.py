"""Exec sessions that are open: commands beside ranks. Each is a row while it lives; the history keeps that it was."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from paceline.db.base import BigInt, ControlBase, UtcDateTime, new_id


class ExecSessionRow(ControlBase):
    """A session. The replica that has its client says again and again that it lives (`seen_at`)."""

    __tablename__ = "exec_sessions"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    job_id: Mapped[str]
    generation: Mapped[int] = mapped_column(BigInt)
    rank: Mapped[int]
    node_id: Mapped[str]
    user_id: Mapped[str]
    user_name: Mapped[str]
    address: Mapped[str]
    via: Mapped[str | None]
    command: Mapped[str]  # as the audit shows it
    asked: Mapped[bool] = mapped_column(default=False)  # the node's agent was told
    refusal: Mapped[str | None]  # why its agent cannot be told
    opened_at: Mapped[datetime] = mapped_column(UtcDateTime)
    seen_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (Index(None, "node_id"), Index(None, "user_id"))
