"""Curves, and the cluster's summary."""

from __future__ import annotations

from pydantic import Field

from paceline.api.schemas.common import AnyFloat, Schema, Timestamp
from paceline.api.schemas.readings import CardCurve
from paceline.db.repositories.rank_series import Statistic


class Curve(Schema):
    """One metric of one rank within one generation, columnar: index i of every list is bucket i.

    `bucket_steps` 1 means raw points (minimum = maximum = mean = last).
    """

    name: str
    unit: str
    rank: int
    generation: int
    bucket_steps: int
    steps: list[int] = Field(description="last step in the bucket")
    minimum: list[AnyFloat]
    maximum: list[AnyFloat]
    mean: list[AnyFloat]
    last: list[AnyFloat]
    count: list[int] = Field(description="points in the bucket")
    times: list[float] = Field(description="seconds since the epoch of the last point")
    nan_count: list[int] = Field(description="points in the bucket that were NaN; minimum, maximum and mean are of the others")


class JobMetrics(Schema):
    job_id: str
    first_step: int | None
    last_step: int | None
    names: list[str] = Field(description="every metric this job has reported")
    curves: list[Curve] = Field(description="at most 2,000 buckets per name and rank, over all its generations together")
    as_of_seq: int = Field(description="the metrics stream continues from here")
    cards: list[CardCurve] = Field([], description="readings of each rank's own card, as `cards` asks for")


class Heatmap(Schema):
    """One metric of every rank over steps, as a grid: a row for each rank, or for several neighbouring ones; a column for each
    `bucket_steps` steps, the first of which begins at `first_step`."""

    job_id: str
    name: str
    unit: str
    statistic: Statistic = Field(description="of the points that share a cell")
    ranks: int = Field(description="as many as the job's largest generation had")
    ranks_per_row: int
    rows: int
    columns: int
    first_step: int | None = Field(description="null: no step has been reported")
    last_step: int | None
    bucket_steps: int
    cells: str = Field(description="rows x columns numbers, row by row: little-endian 32-bit floats in base64; NaN where there is no value")


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
    samples_per_second: float = Field(0.0, description="of all running jobs; those whose samples have no tokens count here only")
    gpu_percent: float | None = Field(None, description="mean utilization of the cards that were read; null: none was")
    gpu_memory_used_bytes: int = 0
    gpu_memory_total_bytes: int = 0
    gpu_power_watts: float | None = Field(None, description="of all cards that tell theirs; null: none does")
    updated_at: Timestamp
