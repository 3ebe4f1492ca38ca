"""What tables read of a job's speed and of its traces."""

from __future__ import annotations

from datetime import datetime

import msgspec


class StepTime(msgspec.Struct, frozen=True):
    name: str
    seconds: float
    share: float


class Utilization(msgspec.Struct, frozen=True):
    text: str
    value: float | None = None
    formula: str | None = None
    flops_per_second: float | None = None
    peak_flops: float | None = None
    sources: list[str] = []


class Bubble(msgspec.Struct, frozen=True):
    formula: float
    text: str
    measured: float | None = None


class PeakMemory(msgspec.Struct, frozen=True):
    rank: int
    bytes: float


class AxisTraffic(msgspec.Struct, frozen=True):
    axis: str
    rank: int
    bytes_per_step: float
    bytes_per_second: float | None = None


class Performance(msgspec.Struct, frozen=True):
    steps: int
    mfu: Utilization
    step_seconds: float | None = None
    exposed_communication: float | None = None
    overlapped_communication: float | None = None
    traffic: list[AxisTraffic] = []
    bubble: Bubble | None = None
    parts: list[StepTime] = []
    peak_memory: list[PeakMemory] = []


class Artifact(msgspec.Struct, frozen=True):
    id: str
    rank: int
    generation: int
    first_step: int
    last_step: int
    state: str
    bytes: int
    created_at: datetime
    request_id: str | None = None
    error: str | None = None

    @property
    def file(self) -> str:
        return f"g{self.generation}-rank{self.rank}-steps{self.first_step}-{self.last_step}.json.gz"


class ProfileRequest(msgspec.Struct, frozen=True):
    id: str
    ranks: list[int]
    state: str
