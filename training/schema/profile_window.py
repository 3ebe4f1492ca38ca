"""The part of a spec that asks for traces. Pure pydantic, no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import FailFast, Field

from paceline.training.schema.parts import MOST_STEPS as MOST_STEPS_OF_A_JOB
from paceline.training.schema.parts import Part, Whole, inconsistent

#: A trace of a large model has 10 to 100 MB a step before it is compressed.
MOST_STEPS = 20
MOST_RANKS = 16

RankNumber = Annotated[Whole, Field(ge=0, lt=1 << 20)]


class ProfileWindow(Part):
    """Steps that some ranks trace with torch.profiler. A job that goes on from a checkpoint behind `first_step` traces nothing."""

    first_step: Whole = Field(10, ge=2, le=MOST_STEPS_OF_A_JOB, description="not the first: the step before it warms the profiler up")
    steps: Whole = Field(3, ge=1, le=MOST_STEPS)
    ranks: Annotated[tuple[RankNumber, ...], FailFast()] = Field((0,), min_length=1, max_length=MOST_RANKS)


def require_traceable(window: ProfileWindow | None, *, script: bool, most_ranks: int) -> None:
    """Check that a spec's profile window can be traced. Raises PydanticCustomError."""
    if window is None:
        return
    if script:
        raise inconsistent("profile needs Paceline's trainer, which knows where a step begins: leave it out for script")
    beyond = beyond_world(window.ranks, most_ranks)
    if beyond:
        raise inconsistent("profile.ranks names {beyond}, but ranks go from 0 to {last}", beyond=beyond, last=most_ranks - 1)


def beyond_world(ranks: Sequence[int], world_size: int) -> str:
    """Return those of `ranks` that are outside of a world of this size, comma-separated."""
    return ", ".join(str(rank) for rank in ranks if rank >= world_size)
