"""How fast a job is, what of a step goes where, and what it takes."""

from __future__ import annotations

from pydantic import Field

from api.schemas.common import Schema


class StepTime(Schema):
    name: str
    seconds: float
    share: float = Field(description="of the step")


class Utilization(Schema):
    """MFU: the model's arithmetic, forward and backward, over what the devices could do at most."""

    value: float | None = Field(description="null: not known, and `text` says why")
    text: str
    formula: str | None = Field(description="how the model's arithmetic is counted, with its numbers")
    flops_per_sample: float | None
    peak_flops: float | None = Field(description="per second, of all ranks together")
    devices: list[str] = Field(description="as their driver names them, each once")
    sources: list[str] = Field(description="where the peaks are from")


class PeakMemory(Schema):
    rank: int
    bytes: float = Field(description="allocated on the GPU, or resident in the CPU's memory, since the rank's process began")


class Performance(Schema):
    job_id: str
    generation: int
    ranks: int = Field(description="of the newest generation")
    steps: int = Field(description="newest steps of rank 0 that the means are of; 0: none is done, or it does not tell")
    step_seconds: float | None
    samples_per_second: float | None
    tokens_per_second: float | None
    parts: list[StepTime] = Field(description="measured on rank 0; they add up to step_seconds")
    exposed_communication: float | None = Field(description="share of a step in which rank 0 waited for others and computed nothing")
    mfu: Utilization
    peak_memory: list[PeakMemory]
