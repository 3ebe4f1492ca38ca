"""Incidents as clients see them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from paceline.api.schemas.common import Schema, Timestamp
from paceline.api.schemas.jobs import Failure
from paceline.cluster.history.incidents import PhaseName
from paceline.cluster.states import EndReason

RecoveryAction = Literal["closed_up", "fell_back", "restarted", "gave_up"]
Outcome = Literal["open", "recovered", "overtaken", "stopped"]


class Phase(Schema):
    name: PhaseName
    seconds: float
    under_way: bool = Field(False, description="the incident is open and this is where it is")


class Incident(Schema):
    """A fault, and its recovery. Its phases add up to the outage, or while it is open to its age; time without a report is part of the
    phase after it."""

    id: str
    job_id: str
    generation: int
    next_generation: int | None
    action: RecoveryAction = Field(description="fell_back: to a checkpoint, in the processes that had survived; restarted: in new ones")
    outcome: Outcome = Field(description="overtaken: by the next fault; stopped: the job ended or was paused before its next step")
    cause: EndReason | None
    what: str = Field(description="the causing rank, where it was and what ended it, in words")
    why: str = Field(description="the decision's reason, as it was known then and corrected when the culprit was heard of later")
    done: str = Field(description="what was done about it, and what it cost, in words")
    culprit: Failure | None = Field(description="the causing rank; the ranks it dragged down are its victims")
    survivors: list[int] = Field(description="ranks with processes that went on in the next generation, by their old numbers")
    old_size: int
    new_size: int | None
    step: int = Field(description="the newest step that any rank was known to have committed: where to mark it on a curve")
    resumed_step: int | None = Field(description="the committed step from which the next generation went on")
    steps_lost: int | None
    seconds_lost: float | None = Field(description="of work: from the step that is kept until the fault")
    fault_at: Timestamp
    first_step_at: Timestamp | None
    over_at: Timestamp | None = Field(description="null while it is open")
    outage_seconds: float | None = Field(description="from the fault until it was over; null while it is open")
    age_seconds: float = Field(description="from the fault until it was over, or until now")
    phases: list[Phase]
