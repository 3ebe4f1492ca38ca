"""The incidents: one row for each fault, from the fault to the job's recovery or end."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from paceline.cluster.states import EndReason
from paceline.db.base import BigInt, ControlBase, JsonDocument, TextEnum, UtcDateTime, new_id, partial_index


class IncidentRow(ControlBase):
    """A fault and its recovery. Times are wall clocks of different observers: the culprit's node, the coordinator, the new generation's
    rank 0."""

    __tablename__ = "incidents"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    generation: Mapped[int] = mapped_column(BigInt)
    next_generation: Mapped[int | None] = mapped_column(BigInt)
    action: Mapped[str]  # closed_up, fell_back, restarted or gave_up
    cause: Mapped[EndReason | None] = mapped_column(TextEnum(EndReason))
    why: Mapped[str]
    culprit: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    cause_is_final: Mapped[bool] = mapped_column("settled", default=False)  # every rank has told how it ended: the culprit stands
    step: Mapped[int] = mapped_column(BigInt)  # the newest that any rank had committed, as far as was known
    resumed_step: Mapped[int | None] = mapped_column(BigInt)
    transfers: Mapped[int | None]
    fault_at: Mapped[datetime] = mapped_column(UtcDateTime)
    detected_at: Mapped[datetime] = mapped_column(UtcDateTime)
    decided_at: Mapped[datetime] = mapped_column(UtcDateTime)
    fenced_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # of a restart: the old ranks were gone
    entered_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # of survivors: into the next generation; of a restart: placed
    joined_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    agreed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    first_step_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    closed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # the job ended or was paused before another step

    __table_args__ = (Index(None, "job_id", "next_generation"),)


OPEN_CAUSE = IncidentRow.cause_is_final.is_(False)
partial_index("ix_incidents_unsettled", OPEN_CAUSE, IncidentRow.id)
