"""The registry of models: names, their versions and where each came from, and aliases that move from version to version."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from paceline.db.base import BigInt, ControlBase, JsonDocument, UtcDateTime, new_id


class ModelRow(ControlBase):
    """A registered model. `last_number`: of its newest version ever; numbers are not used again."""

    __tablename__ = "models"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(unique=True)
    last_number: Mapped[int] = mapped_column(default=0)
    created_by: Mapped[str]
    created_by_id: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class ModelVersionRow(ControlBase):
    """A version: a checkpoint, or a file that a job has left. `pinned_before`: its checkpoint is pinned by somebody as well, and stays so."""

    __tablename__ = "model_versions"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"))
    number: Mapped[int]
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    checkpoint_id: Mapped[str | None] = mapped_column(ForeignKey("checkpoints.id"))
    artifact_id: Mapped[str | None]
    path: Mapped[str | None]
    step: Mapped[int | None] = mapped_column(BigInt)
    bytes: Mapped[int] = mapped_column(BigInt)
    sha256: Mapped[str]
    metrics: Mapped[dict[str, Any]] = mapped_column(JsonDocument, default=dict)
    notes: Mapped[str]
    pinned_before: Mapped[bool]
    created_by: Mapped[str]
    created_by_id: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (
        UniqueConstraint("model_id", "number"),
        Index(None, "checkpoint_id"),
        Index(None, "artifact_id"),
        Index(None, "job_id"),
    )


class ModelAliasRow(ControlBase):
    __tablename__ = "model_aliases"

    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"), primary_key=True)
    alias: Mapped[str] = mapped_column(primary_key=True)
    version_id: Mapped[str] = mapped_column(ForeignKey("model_versions.id"))
    moved_by: Mapped[str]
    moved_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (Index(None, "version_id"),)
