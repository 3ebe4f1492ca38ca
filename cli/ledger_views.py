"""The parts of incidents, goodput, samples and comparisons that tables read. Unknown fields are ignored: the API only grows."""

from __future__ import annotations

from datetime import datetime

import msgspec

from cli.views import AnyFloat, Failure


class Phase(msgspec.Struct, frozen=True):
    name: str
    seconds: float
    under_way: bool = False


class Incident(msgspec.Struct, frozen=True):
    id: str
    outcome: str
    what: str
    why: str
    done: str
    step: int
    fault_at: datetime
    age_seconds: float
    outage_seconds: float | None = None
    steps_lost: int | None = None
    seconds_lost: float | None = None
    old_size: int = 0
    new_size: int | None = None
    culprit: Failure | None = None
    phases: list[Phase] = []


class Part(msgspec.Struct, frozen=True):
    cause: str
    seconds: float
    share: float


class Goodput(msgspec.Struct, frozen=True):
    text: str
    wall_seconds: float
    paused_seconds: float = 0.0
    goodput: float | None = None
    parts: list[Part] = []


class SampleRange(msgspec.Struct, frozen=True):
    generation: int
    first_step: int
    last_step: int
    first_sample: int
    samples: int
    epoch: int | None = None


class SampleAudit(msgspec.Struct, frozen=True):
    text: str
    exactly_once: bool | None = None
    findings: list[str] = []
    ranges: list[SampleRange] = []
    next_cursor: str | None = None


class SpecDifference(msgspec.Struct, frozen=True):
    text: str
    changes_numbers: bool


class Metric(msgspec.Struct, frozen=True):
    name: str
    compared: int
    equal: int
    largest_relative_difference: AnyFloat | None = None


class Comparison(msgspec.Struct, frozen=True):
    text: str
    same_run: bool
    spec_differences: list[SpecDifference] = []
    metrics: list[Metric] = []


class ComparisonReport(msgspec.Struct, frozen=True):
    items: list[Comparison]
