"""What a job does about a loss that is NaN, infinite or a spike."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from paceline.monitoring.loss_watch import BadLossKind

BadLossPolicy = Literal["warn", "stop", "skip_update", "roll_back"]
#: Policies that need a trainer which asks before it updates.
NEED_A_TRAINER = frozenset({"skip_update", "roll_back"})
#: How many samples and micro-batches are told of a step whose loss is bad.
MOST_SAMPLE_IDS = 256
MOST_MICRO_BATCHES = 64

OnNan = Annotated[
    BadLossPolicy,
    Field(
        description="Action after a step whose loss is NaN or infinite. warn: an event and a notice. stop: the job fails. skip_update: the step "
        "changes nothing, for at most 20 such steps in a row. roll_back: all ranks restart from the newest checkpoint (one of max_restarts) and "
        "skip that step's update. All but warn act before the update, and check the gradients too. Scripts have warn and stop."
    ),
]
OnSpike = Annotated[
    BadLossPolicy, Field(description="Action after a loss far above those of the last 64 steps (formula: monitoring/loss_watch.py).")
]


def what_is_bad(kind: BadLossKind, step: int, loss: float, limit: float | None) -> str:
    """`limit`: of a spike, where it is known."""
    if kind == "spike":
        above = "" if limit is None else f", above the limit of {limit:.4g}"
        return f"the loss of step {step} is a spike: {loss:.4g}{above}"
    if math.isfinite(loss):
        return f"the gradients of step {step} are not finite, and its loss is {loss:.4g}"
    return f"the loss of step {step} is {'NaN' if math.isnan(loss) else 'infinite'}"


def what_is_done(kind: BadLossKind, act: BadLossPolicy, *, again: bool = False) -> str:
    """`again`: the job has gone back because of this step before."""
    match act:
        case "stop":
            return "the job is stopped"
        case "skip_update":
            return "the job had gone back because of it, and the update was skipped now" if again else "the update was skipped"
        case "roll_back":
            policy = "on_nan" if kind == "not_finite" else "on_spike"
            return f"the job goes back to its newest checkpoint, and skips this update then, as fault_tolerance.{policy}=roll_back asks"
    return "what is trained from there on is of no use; checkpoints from before it are kept" if kind == "not_finite" else "training goes on"
