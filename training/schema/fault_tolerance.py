"""The `fault_tolerance` section: what is done about lost ranks, hangs and bad losses. Pure pydantic."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from paceline.training.schema.amounts import Seconds
from paceline.training.schema.bad_loss import OnNan, OnSpike
from paceline.training.schema.parts import Part, Whole, inconsistent

#: The limits of `hang_seconds`. A garbage collection or a crowded machine takes less than the least.
LEAST_HANG_SECONDS = 1
MOST_HANG_SECONDS = 7 * 24 * 3600


class FaultTolerance(Part):
    """After a fault. `close_up`: the other ranks go on in the same processes, and replacements join them; from the newest committed step
    where they hold all of the state between them, else (fsdp) from the newest verified checkpoint. `restart`, also where nobody is left to
    go on or the code itself is broken: all ranks are started again, from the newest verified checkpoint. What goes back to a checkpoint
    happens at most `max_restarts` times."""

    max_restarts: Whole = Field(3, ge=0, le=1000)
    recovery: Literal["restart", "close_up"] = "close_up"
    spares: Whole = Field(0, ge=0, le=64, description="Ranks kept warm in slots of their own. They replace lost ranks at once.")
    hang_seconds: Seconds | None = Field(
        None,
        le=MOST_HANG_SECONDS,
        description="Longest time for one step while other ranks wait for it; then the rank counts as hung. Default: ten times the "
        "measured step time plus 30 s. Stopped processes and silent machines are noticed sooner. Scripts: longest time "
        "without output or a step; by default never ended, with a notice after 5 minutes.",
    )
    on_nan: OnNan = "warn"
    on_spike: OnSpike = "warn"

    @property
    def rolls_back(self) -> bool:
        return "roll_back" in (self.on_nan, self.on_spike)

    @model_validator(mode="after")
    def check_hang_detection(self) -> FaultTolerance:
        if self.hang_seconds is not None and self.hang_seconds < LEAST_HANG_SECONDS:
            raise inconsistent(
                "hang_seconds={given} would take a moment's delay for a hang; use {least} or more, or leave it out",
                given=self.hang_seconds,
                least=LEAST_HANG_SECONDS,
            )
        return self
