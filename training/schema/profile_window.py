"""The `profile` section: traces that are asked for. Pure pydantic, no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import FailFast, Field

from paceline.training.schema.parts import MOST_STEPS as MOST_STEPS_OF_A_JOB
from paceline.training.schema.parts import Part, Whole

#: A trace of a large model has 10 to 100 MB a step before it is compressed.
MOST_STEPS = 20
MOST_RANKS = 16

RankNumber = Annotated[Whole, Field(ge=0, lt=1 << 20)]


class ProfileWindow(Part):
    """Steps that some ranks trace with torch.profiler. A job that goes on from a checkpoint behind `first_step` traces nothing."""

    first_step: Whole = Field(
        10, ge=2, le=MOST_STEPS_OF_A_JOB, description="First step to trace, at least 2. The step before it warms up the profiler."
    )
    steps: Whole = Field(3, ge=1, le=MOST_STEPS)
    ranks: Annotated[tuple[RankNumber, ...], FailFast()] = Field((0,), min_length=1, max_length=MOST_RANKS)


def beyond_world(ranks: Sequence[int], world_size: int) -> str:
    """Return those of `ranks` that are outside of a world of this size, comma-separated."""
    return ", ".join(str(rank) for rank in ranks if rank >= world_size)
