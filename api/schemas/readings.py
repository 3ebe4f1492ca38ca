"""Readings of nodes and cards over time, and what a job used of them."""

from __future__ import annotations

from pydantic import Field

from paceline.api.schemas.common import Schema


class ReadingCurve(Schema):
    """One metric of a node, of one of its cards or network interfaces, columnar: index i of every list is bucket i. Buckets without a
    reading are absent."""

    card: int | None = Field(description="the driver's index; null: of the node itself or an interface")
    interface: str | None = Field(description="name of the network interface; null: of the node itself or a card")
    name: str
    unit: str
    times: list[float] = Field(description="start of the bucket, seconds since the epoch on the node's clock")
    mean: list[float]
    minimum: list[float]
    maximum: list[float]


class NodeMetrics(Schema):
    node_id: str
    node_name: str
    first_time: float | None = Field(description="of what is kept, seconds since the epoch; null: nothing")
    last_time: float | None
    bucket_seconds: int
    curves: list[ReadingCurve]
    as_of_seq: int = Field(description="the cluster's stream continues from here")


class CardCurve(Schema):
    """One metric of the card that a rank holds. A value is null where the card was not read: its node was away, or has no such card."""

    rank: int
    generation: int = Field(description="on the time axis: the first in which the rank held this card")
    node_id: str
    node_name: str
    card: int
    name: str
    unit: str
    steps: list[int] = Field(description="last step of the bucket; empty on the time axis")
    times: list[float] = Field(description="end of the step, or start of the bucket of time; seconds since the epoch")
    mean: list[float | None]
    minimum: list[float | None]
    maximum: list[float | None]


class CardUse(Schema):
    """Use of a card while a rank held it."""

    rank: int
    node_id: str
    node_name: str
    card: int | None = Field(description="the driver's index; null: a CPU slot")
    held_seconds: float
    measured_ratio: float = Field(description="share of that time in which its power was read")
    energy_joules: float | None = Field(description="mean of the power that was read, over the time held; null: none was read")
    utilization_percent: float | None = Field(description="mean over the last minutes; null: not read, or the rank holds it no more")
    idle: bool = Field(description="held now, and used for less than 5% of the last minutes")


class JobUsage(Schema):
    job_id: str
    slot_hours: float = Field(description="slots times the hours in which they were held, over all generations")
    energy_joules: float | None = Field(
        description="of all cards; null: the power of one at least was never read, or it is no longer kept which they were"
    )
    cards: list[CardUse] = Field(description="by rank; a rank that has moved to another card has one entry for each")


class IdleCard(Schema):
    """A card that a job holds and leaves idle."""

    job_id: str
    job_name: str
    rank: int
    node_id: str
    node_name: str
    card: int
    utilization_percent: float = Field(description="mean of the last five minutes")


class IdleCards(Schema):
    cards: list[IdleCard] = Field(description="by job, then by rank")
