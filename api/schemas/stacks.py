"""The Python stacks of a job's ranks."""

from __future__ import annotations

from pydantic import Field

from paceline.api.schemas.common import Schema, Timestamp
from paceline.cluster.states import RankState


class StackFrame(Schema):
    function: str
    file: str = Field(description="of a library, from its package on")
    line: int
    own: bool = Field(description="the user brought this file")


class StackThread(Schema):
    name: str
    frames: list[StackFrame] = Field(description="the innermost first")


class StackProcess(Schema):
    pid: int
    command: str
    threads: list[StackThread] = Field(description="the main thread first")
    error: str = Field(description="why there are no threads, with the way out")


class RankStacks(Schema):
    rank: int
    node_name: str
    state: RankState
    differs: bool = Field(description="this rank is elsewhere than the others, which may wait for it")
    same_as: int = Field(description="the first rank whose processes have the very same stacks: itself where no earlier one has")
    summary: str = Field(description="where it is, as `waits in all_reduce (step in train.py:9)`")
    taken_at: Timestamp | None = Field(description="null: its agent has not answered")
    cores: float | None = Field(description="CPU time of all its processes, by the seconds that passed; null: not known")
    gpu_percent: float | None = Field(description="utilization of its card; null: there is none, or it is not known")
    error: str = Field(description="why there is no stack, with the way out; empty: there is one")
    processes: list[StackProcess] = Field(description="the rank itself first, then launchers and workers of data loaders")


class JobStacks(Schema):
    job_id: str
    generation: int
    summary: str = Field(description="what the ranks do, and which one differs")
    differs: list[int] = Field(description="the ranks that differ from the others; none where none does, or none can be named")
    ranks: list[RankStacks]


class HangNotice(Schema):
    """The job seems to hang. Withdrawn with the next output or step."""

    since: Timestamp = Field(description="the last output or step of any rank")
    told_at: Timestamp
    message: str
    differs: list[int] = Field(description="as of `JobStacks`")
    ends: bool = Field(description="fault_tolerance.hang_seconds is given: its ranks are ended")
