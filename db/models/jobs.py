"""Jobs, their generations and the ranks of each."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, ForeignKeyConstraint, Index, false
from sqlalchemy.orm import Mapped, mapped_column

from cluster.states import EndReason, Intent, JobState, RankState
from db.base import BigInt, ControlBase, JsonDocument, TextEnum, UtcDateTime, new_id


class JobRow(ControlBase):
    """`version` is the revision clients see as ETag: it grows with every change of state or intent."""

    __tablename__ = "jobs"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    name: Mapped[str]
    project: Mapped[str]
    priority: Mapped[int]
    labels: Mapped[dict[str, str]] = mapped_column(JsonDocument, default=dict)
    state: Mapped[JobState] = mapped_column(TextEnum(JobState))
    desired: Mapped[Intent] = mapped_column(TextEnum(Intent), default=Intent.RUN)
    end_reason: Mapped[EndReason | None] = mapped_column(TextEnum(EndReason))
    pending: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    spec: Mapped[dict[str, Any]] = mapped_column(JsonDocument)
    world_size: Mapped[int]
    generation: Mapped[int] = mapped_column(BigInt, default=0)
    restarts: Mapped[int] = mapped_column(default=0)
    version: Mapped[int] = mapped_column(BigInt, default=1)
    restored_from: Mapped[str | None]
    failure: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    progress: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    queued_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    state_since: Mapped[datetime] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    __table_args__ = (Index(None, "state"), Index(None, "created_at", "id"), Index(None, "name", "id"), Index(None, "priority", "id"))


class GenerationRow(ControlBase):
    __tablename__ = "generations"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    generation: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=False)
    world_size: Mapped[int]
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    first_step_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    end_reason: Mapped[EndReason | None] = mapped_column(TextEnum(EndReason))
    start_step: Mapped[int] = mapped_column(BigInt, default=0)
    restored_checkpoint_id: Mapped[str | None]
    store_token: Mapped[str]
    #: The one before it was well: its ranks leave that one after a step that they agree on.
    at_boundary: Mapped[bool] = mapped_column(default=False, server_default=false())


class RankRow(ControlBase):
    """Ranks from the generation's `world_size` on are `parked`: they hold a slot, and wait for a place in a newer generation."""

    __tablename__ = "ranks"

    job_id: Mapped[str] = mapped_column(primary_key=True)
    generation: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=False)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.id"))
    slot: Mapped[int]
    local_rank: Mapped[int]
    node_rank: Mapped[int]
    state: Mapped[RankState] = mapped_column(TextEnum(RankState), default=RankState.ASSIGNED)
    born_generation: Mapped[int | None] = mapped_column(BigInt)  # its process was started as this rank of that generation;
    born_rank: Mapped[int | None]  # both empty: as this one
    parked: Mapped[bool] = mapped_column(default=False, server_default=false())
    #: It was parked until now, so it has no part yet in what was trained.
    newcomer: Mapped[bool] = mapped_column(default=False, server_default=false())
    pid: Mapped[int | None]
    step: Mapped[int] = mapped_column(BigInt, default=0)
    total_steps: Mapped[int | None] = mapped_column(BigInt)
    progress_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    exit_code: Mapped[int | None]
    signal: Mapped[str | None]
    outcome: Mapped[str | None]
    failure: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    stall: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)  # training.link.Stalled, while it is
    suspended: Mapped[bool] = mapped_column(default=False, server_default=false())  # its process is stopped by a signal
    drained: Mapped[bool] = mapped_column(default=False)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (
        ForeignKeyConstraint(["job_id", "generation"], ["generations.job_id", "generations.generation"]),
        Index(None, "node_id", "state"),
    )


class RankEventMarkRow(ControlBase):
    """The highest rank event applied: moved in the transaction that applies it, so each is applied exactly once."""

    __tablename__ = "rank_event_marks"

    job_id: Mapped[str] = mapped_column(primary_key=True)
    generation: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=False)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    seq: Mapped[int] = mapped_column(BigInt)
