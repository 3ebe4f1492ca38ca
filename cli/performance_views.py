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
    peak_flops: float | None = None
    sources: list[str] = []


class PeakMemory(msgspec.Struct, frozen=True):
    rank: int
    bytes: float


class Performance(msgspec.Struct, frozen=True):
    steps: int
    mfu: Utilization
    step_seconds: float | None = None
    exposed_communication: float | None = None
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
