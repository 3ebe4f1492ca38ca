"""Incidents as clients see them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from api.schemas.common import Schema, Timestamp
from api.schemas.jobs import Failure
from cluster.states import EndReason

Action = Literal["closed_up", "restarted", "gave_up"]
PhaseName = Literal["detect", "decide", "fence", "rebuild", "transfer", "first_step"]


class Phase(Schema):
    name: PhaseName
    seconds: float


class Incident(Schema):
    """A fault, and what became of the job. Its phases add up to the outage; one that has not ended, or was not told, is left out."""

    id: str
    job_id: str
    generation: int
    next_generation: int | None
    action: Action
    cause: EndReason | None
    why: str
    culprit: Failure | None = Field(description="the causing rank; the ranks it dragged down are its victims")
    step: int = Field(description="the newest step that any rank was known to have committed")
    resumed_step: int | None = Field(description="the committed step from which the next generation went on")
    steps_lost: int | None
    fault_at: Timestamp
    first_step_at: Timestamp | None
    outage_seconds: float | None
    phases: list[Phase]
