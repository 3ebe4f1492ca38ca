"""What a job's ranks have recorded of their own gradients."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from paceline.api.schemas.common import Schema


class GradientStep(Schema):
    step: int
    generation: int = Field(description="the newest that has recorded this step")
    ready: int = Field(description="ranks whose record is there")
    arriving: int
    failed: int


class JobGradients(Schema):
    job_id: str
    steps: list[GradientStep] = Field(description="in rising order")


class GradientRecordState(Schema):
    rank: int
    state: Literal["arriving", "ready", "failed"]
    error: str | None = Field(description="why there is no record")
    snapshot_id: str | None = Field(description="artifact with this rank's gradients: a file of torch.save, by name; null: there is none")


class RankGradient(Schema):
    """One rank's gradient of one parameter, before ranks exchange gradients."""

    rank: int
    shape: list[int] = Field(description="of what the rank has")
    elements: int
    norm: float | None = Field(description="L2; null: an element is not finite")
    zeros: int
    nans: int
    infs: int


class ParameterGradients(Schema):
    name: str
    sharded: bool = Field(description="each rank has a shard, and its numbers are of that")
    histogram: list[int] = Field(description="elements in each bin, summed over `ranks`; zeros and what is not finite are in none")
    ranks: list[RankGradient]
    unused: list[int] = Field(description="ranks whose backward has not reached it")


class StepGradients(Schema):
    job_id: str
    step: int
    generation: int
    ranks: list[GradientRecordState] = Field(description="those that have recorded the step, of the ranks that were asked for")
    edges: list[float] = Field(description="of the bins; the first reaches from -infinity, the last to infinity; a bin has its lower edge")
    parameters: list[ParameterGradients]
