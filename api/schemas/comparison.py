"""The comparison of two runs: are they the same?"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from paceline.api.schemas.common import AnyFloat, Schema
from paceline.cluster.states import JobState

Verdict = Literal["same", "same_so_far", "diverged", "close", "different", "nothing_to_compare"]


class ComparedJob(Schema):
    id: str
    name: str
    state: JobState
    last_step: int | None = Field(description="newest step that is known")
    world_sizes: list[int] = Field(description="of the generations that took steps, in order")
    recoveries: int
    resizes: int
    pauses: int


class SpecDifference(Schema):
    path: str = Field(description="dotted path into the spec")
    values: list[str] = Field(description="as JSON, one for each of the two jobs; 'absent' where it is not there")
    changes_numbers: bool = Field(description="a run with the other value may give other numbers")
    text: str


class FirstDifference(Schema):
    step: int
    values: list[AnyFloat]


class MetricComparison(Schema):
    """One metric at the steps that both runs have recorded: compared as bits."""

    name: str
    compared: int
    equal: int
    first_difference: FirstDifference | None
    largest_relative_difference: AnyFloat | None = Field(description="0 where all are equal")
    only_in_one: int = Field(description="steps up to the shorter run's end that only one of them has")


class ParameterComparison(Schema):
    step: int = Field(description="the newest step of which both have a checkpoint with a hash of its parameters")
    hashes: list[str]
    equal: bool


class Comparison(Schema):
    """The comparison of one job with the first one that was named."""

    jobs: list[ComparedJob] = Field(description="the two of them, the first one first")
    verdict: Verdict
    same_run: bool = Field(
        description="every step that both have is equal to the last bit, and so are the parameters where both have a hash"
    )
    text: str = Field(description="the verdict in words to quote")
    spec_differences: list[SpecDifference]
    metrics: list[MetricComparison]
    parameters: ParameterComparison | None


class ComparisonReport(Schema):
    items: list[Comparison]
