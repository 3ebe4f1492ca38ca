"""The choice of `strategy: auto` for a job, and the other plans with their reasons."""

from __future__ import annotations

from pydantic import Field

from paceline.api.schemas.common import Schema


class PlanOption(Schema):
    name: str = Field(description="`shard 4 x replicate 2, full activation checkpointing, micro-batches of 2`")
    axes: str = Field(description="`shard 4 x replicate 2`")
    activation_checkpointing: str
    micro_batch_size: int
    memory_bytes: int = Field(description="of one rank at its fullest moment, estimated")
    step_seconds: float = Field(description="estimated: to rank plans by, not a promise")
    why: str = Field(description="why it was not chosen; empty for the one that was")


class PlanChoice(Schema):
    asked: list[str] = Field(description="what the spec said of it, as in `parallelism.strategy: auto`")
    why: str = Field(description="two sentences")
    assumed: str = Field(description="the assumptions of the estimates that were not measured")
    budget_bytes: int = Field(description="what a plan may need: of a slot's memory all but a tenth")
    chosen: PlanOption
    rejected: list[PlanOption] = Field(description="those that fit first, the fastest first, then those that do not, the smallest first")
    not_told: int = Field(description="further rejected plans, which are left out")
