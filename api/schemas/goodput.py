"""Goodput: how a job's time was spent."""

from __future__ import annotations

from pydantic import Field

from paceline.api.schemas.common import Schema, Timestamp
from paceline.cluster.history.goodput import Cause


class TimePart(Schema):
    cause: Cause
    seconds: float
    share: float = Field(description="of the wall time")
    text: str = Field(description="what the cause means")


class IncidentPart(Schema):
    """One incident's share of the cause `incident`: its outage without the next generation's first step, which counts as stepping."""

    incident_id: str
    seconds: float
    text: str


class Goodput(Schema):
    job_id: str
    goodput: float | None = Field(description="useful step time / wall time; null until a step is done, and for scripts")
    text: str
    since: Timestamp | None = Field(description="when the job first got its slots; null until then")
    until: Timestamp = Field(description="now, or when the job ended")
    wall_seconds: float = Field(description="from since to until, without the time it was paused")
    paused_seconds: float = Field(description="its user's: not part of the wall time")
    queued_seconds: float = Field(description="before it first got slots: not part of the wall time")
    useful_steps: int | None = Field(description="null for scripts: they do not tell what a step is")
    redone_steps: int | None = Field(description="steps that two generations finished count twice; null for scripts")
    parts: list[TimePart] = Field(description="every cause that took time, in a fixed order; they add up to wall_seconds")
    incidents: list[IncidentPart] = Field(description="oldest first; they add up to the part `incident`")
    resolution_steps: int = Field(description="1: from every step's own record; else from roll-ups of so many steps")
