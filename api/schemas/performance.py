"""The speed of a job, the parts of a step's time, and its resources."""

from __future__ import annotations

from pydantic import Field

from paceline.api.schemas.common import Schema


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
    flops_per_second: float | None = Field(description="that the model needed of all ranks together, whatever their peak is")
    peak_flops: float | None = Field(description="per second, of all ranks together")
    devices: list[str] = Field(description="as their driver names them, each once")
    sources: list[str] = Field(description="where the peaks are from")


class Bubble(Schema):
    """The idle time of a pipeline, as a share of a step."""

    measured: float | None = Field(description="in which its ranks computed nothing, in the mean; null: no step is done yet")
    formula: float = Field(description="of its schedule, were all stages and passes equally long and transfers free")
    text: str


class PeakMemory(Schema):
    rank: int
    bytes: float = Field(description="allocated on the GPU, or resident in the CPU's memory, since the rank's process began")


class AxisTraffic(Schema):
    """The bytes that one rank sends to others, as the algorithms that carry them do."""

    axis: str = Field(description="of the mesh; world: losses, requests and norms, between all ranks")
    rank: int = Field(description="the one that sends most along this axis")
    bytes_per_step: float = Field(description="that it sends, in the mean of the generation's steps")
    bytes_per_second: float | None = Field(description="of the step: a link that carries just that much is never idle")


class Performance(Schema):
    job_id: str
    generation: int
    ranks: int = Field(description="of the newest generation")
    steps: int = Field(description="newest steps of rank 0 that the means are of; 0: none is done, or it does not tell")
    step_seconds: float | None
    samples_per_second: float | None
    tokens_per_second: float | None
    timed_rank: int = Field(
        description="that `parts` and the shares of communication are measured on: 0, or the first worker beside parameter servers"
    )
    parts: list[StepTime] = Field(
        description="they add up to step_seconds; without communication where that is not known, and lies in backward: see exposed_communication"
    )
    exposed_communication: float | None = Field(
        description="share of a step in which `timed_rank` waited for others and computed nothing; null: not known, as on GPUs with fsdp or "
        "tensor parallelism, where torch starts what is waited for"
    )
    overlapped_communication: float | None = Field(
        description="share of a step in which something was under way while `timed_rank` computed; null: not measured, as on GPUs and in pipelines"
    )
    traffic: list[AxisTraffic] = Field(description="by axis of the mesh, the outermost first; empty where there is one rank")
    uncounted: list[str] = Field(
        description="axes of the mesh that ranks send along uncounted: on GPUs torch itself sends what tensor parallelism does"
    )
    bubble: Bubble | None = Field(description="null: the job is no pipeline")
    mfu: Utilization
    peak_memory: list[PeakMemory]
