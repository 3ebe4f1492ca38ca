"""Curves, and the cluster's summary."""

from __future__ import annotations

from pydantic import Field

from paceline.api.schemas.common import AnyFloat, Schema, Timestamp


class Curve(Schema):
    """One metric of one rank within one generation, columnar: index i of every list is bucket i.

    `bucket_steps` 1 means raw points (min = max = last).
    """

    name: str
    unit: str
    rank: int
    generation: int
    bucket_steps: int
    steps: list[int] = Field(description="last step in the bucket")
    minimum: list[AnyFloat]
    maximum: list[AnyFloat]
    last: list[AnyFloat]
    times: list[float] = Field(description="seconds since the epoch of the last point")
    nan_count: list[int] = Field(description="points in the bucket that were NaN; minimum and maximum are of the others")


class JobMetrics(Schema):
    job_id: str
    first_step: int | None
    last_step: int | None
    names: list[str] = Field(description="every metric this job has reported")
    curves: list[Curve] = Field(description="at most 2,000 buckets per name and rank, over all its generations together")
    as_of_seq: int = Field(description="the metrics stream continues from here")


class StateCount(Schema):
    state: str
    count: int


class ClusterSummary(Schema):
    nodes: list[StateCount]
    jobs: list[StateCount]
    slots_total: int
    slots_used: int
    slots_free: int
    gpus: int
    cpu_percent: float | None
    memory_used_bytes: int
    memory_total_bytes: int
    tokens_per_second: float
    updated_at: Timestamp
