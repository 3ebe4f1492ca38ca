"""The committed checkpoints. A directory without a row here is debris."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from paceline.cluster.states import CheckpointState
from paceline.db.base import BigInt, ControlBase, JsonDocument, TextEnum, UtcDateTime, constants, new_id, partial_index


class CheckpointRow(ControlBase):
    __tablename__ = "checkpoints"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    step: Mapped[int] = mapped_column(BigInt)
    generation: Mapped[int] = mapped_column(BigInt)
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.id"))
    state: Mapped[CheckpointState] = mapped_column(TextEnum(CheckpointState), default=CheckpointState.COMMITTED)
    directory: Mapped[str]
    bytes: Mapped[int] = mapped_column(BigInt)
    manifest_sha256: Mapped[str]
    parameters_sha256: Mapped[str | None]  # the same whatever world wrote them
    metrics: Mapped[dict[str, Any]] = mapped_column(JsonDocument, default=dict)
    stall_seconds: Mapped[float | None]  # that training waited for it; null where no rank lived to report what it cost
    write_seconds: Mapped[float | None]
    slowdown: Mapped[float | None]  # of steps while it was written
    pinned: Mapped[bool] = mapped_column(default=False)
    damage: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    version: Mapped[int] = mapped_column(BigInt, default=1)

    __table_args__ = (Index(None, "job_id", "step", "id"), Index(None, "node_id", "state"))


#: What retention chooses from.
KEPT_STATES = (CheckpointState.COMMITTED, CheckpointState.SUPERSEDED, CheckpointState.DAMAGED)
KEPT = CheckpointRow.state.in_(constants(*KEPT_STATES))
BEING_DELETED = CheckpointRow.state.in_(constants(CheckpointState.DELETING))

partial_index("ix_checkpoints_kept", KEPT, CheckpointRow.job_id, CheckpointRow.version, CheckpointRow.id)
partial_index("ix_checkpoints_being_deleted", BEING_DELETED, CheckpointRow.node_id)
