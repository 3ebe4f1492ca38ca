"""What a job's ranks have recorded of their own gradients."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from paceline.api.schemas.common import Schema, Timestamp
from paceline.training.schema.gradients import MOST_PATTERNS, ParameterPattern


class GradientStep(Schema):
    step: int
    generation: int = Field(description="the newest that has recorded this step")
    ready: int = Field(description="ranks whose record is there")
    arriving: int
    failed: int


class GradientsOrder(Schema):
    names: tuple[ParameterPattern, ...] = Field(
        ("*",), min_length=1, max_length=MOST_PATTERNS, description="patterns for names of trainable parameters, such as blocks.0.*"
    )
    snapshots: bool = Field(False, description="also keep the gradients themselves, as one file per rank")


class RequestedGradients(Schema):
    """Gradients of one step that were asked for while the job runs. The request belongs to one generation, and ends with it."""

    id: str
    job_id: str
    generation: int
    names: list[str]
    snapshots: bool
    step: int | None = Field(description="the step that is recorded, the same on all ranks; null: no rank has answered yet")
    ranks: int = Field(description="how many are asked: all")
    answered: int = Field(description="how many have answered, with a record or with the reason why there is none")
    state: Literal["open", "done", "missed"] = Field(description="missed: its generation ended before every rank had answered")
    created_by: str
    created_at: Timestamp


class JobGradients(Schema):
    job_id: str
    steps: list[GradientStep] = Field(description="in rising order")
    request: RequestedGradients | None = Field(description="the newest that was made while the job runs; null: none was")


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
