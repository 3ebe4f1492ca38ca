"""The `gradients` section: which gradients each rank records, and at which steps. Pure pydantic, no torch."""

from __future__ import annotations

from typing import Annotated

from pydantic import FailFast, Field, model_validator

from paceline.monitoring.gradient_records import MAX_BINS, MAX_PARAMETERS
from paceline.training.schema.parts import Part, PositiveInt, Text, Whole, inconsistent

MIN_BINS, DEFAULT_BINS = 8, 64
MOST_PATTERNS = 64
#: Steps of one job at which statistics are recorded, and at which tensors are kept.
MOST_STEPS, MOST_SNAPSHOTS = 1000, 20
#: Parameters times steps, on one rank.
MOST_RECORDS = MAX_PARAMETERS

#: As of a shell, for names of trainable parameters.
ParameterPattern = Annotated[Text, Field(min_length=1, max_length=200)]


class Gradients(Part):
    """Gradients that each rank records as backward leaves them, before ranks exchange them."""

    steps: Annotated[tuple[PositiveInt, ...], FailFast()] = Field((), max_length=MOST_STEPS, description="Optimizer steps to record.")
    every: PositiveInt | None = Field(None, description="Also record every N-th step.")
    names: Annotated[tuple[ParameterPattern, ...], FailFast()] = Field(
        ("*",),
        min_length=1,
        max_length=MOST_PATTERNS,
        description="Trainable parameters to record. Patterns such as blocks.0.* or *.weight. Default: all.",
    )
    bins: Whole = Field(
        DEFAULT_BINS, ge=MIN_BINS, le=MAX_BINS, description="Bins of each histogram. An even number, half of them for negative values."
    )
    snapshots: bool = Field(False, description="Also keep the gradients themselves, as one file per rank and step.")

    @model_validator(mode="after")
    def check_steps(self) -> Gradients:
        if not self.steps and self.every is None:
            raise inconsistent("gradients records no step: give steps, such as [100, 200], or every")
        if self.bins % 2:
            raise inconsistent(
                "gradients.bins={bins} is odd, and half of the bins are for negative numbers; use {even}",
                bins=self.bins,
                even=self.bins + 1,
            )
        return self

    def includes(self, step: int) -> bool:
        """Whether `step` is recorded."""
        return step in self.steps or (self.every is not None and step % self.every == 0)

    def count(self, total_steps: int) -> int:
        """Return how many of the steps from 1 to `total_steps` are recorded."""
        named = {step for step in self.steps if step <= total_steps}
        if self.every is None:
            return len(named)
        return total_steps // self.every + sum(step % self.every != 0 for step in named)

    def why_too_many_steps(self, total_steps: int) -> str | None:
        """Return why a job of `total_steps` would record too many of them, with the way out, or None."""
        count, most, kept = self.count(total_steps), MOST_STEPS, "recorded"
        if self.snapshots:
            most, kept = MOST_SNAPSHOTS, "kept as snapshots"
        if count <= most:
            return None
        way_out = f"use every={-(-total_steps // max(1, most - len(self.steps)))} or more" if self.every else "name fewer steps"
        return f"gradients chooses {count:,} of {total_steps:,} steps; at most {most:,} are {kept}: {way_out}"

    def why_no_step(self, total_steps: int) -> str | None:
        """Return why a job of `total_steps` would record none of them, with the way out, or None."""
        if self.count(total_steps):
            return None
        first = min((*self.steps, *([self.every] if self.every else [])))
        return f"gradients begins with step {first:,}, and the job ends after {total_steps:,}: choose a step up to that, or train longer"

    def why_too_many_records(self, parameters: int, total_steps: int) -> str | None:
        """Return why `parameters` of one rank at the chosen steps are too much, with the way out, or None."""
        count = self.count(total_steps)
        if parameters * count <= MOST_RECORDS:
            return None
        return (
            f"gradients chooses {parameters:,} parameters at {count:,} steps, {parameters * count:,} records on one rank; at most "
            f"{MOST_RECORDS:,} are kept: choose fewer names, or {MOST_RECORDS // parameters:,} steps"
        )
