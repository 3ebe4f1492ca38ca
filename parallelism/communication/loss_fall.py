"""Does the loss fall more slowly by one way to sum gradients than by another? Told by windows of equal length, one after the other. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Standard errors by which two falls must differ, to differ for certain.
SURE = 2.0
#: The share of the fall that may be lost: as much as a choice that leaves something out must save of a step.
LOST_SHARE = 0.2


@dataclass(frozen=True)
class LossFall:
    """How much a loss falls in a step, by a straight line through the losses of some steps."""

    per_step: float
    doubt: float  # its standard error


@dataclass(frozen=True)
class SlowerFall:
    """A loss that falls more slowly than by the default, for certain. Both are of one step."""

    per_step: float
    by_default: float


def loss_fall(losses: Sequence[float]) -> LossFall:
    """Return the slope of the least-squares line through at least three losses, downwards, with the standard error that they scatter by."""
    count = len(losses)
    middle, mean = (count - 1) / 2, sum(losses) / count
    spread = sum((step - middle) ** 2 for step in range(count))
    slope = sum((step - middle) * (loss - mean) for step, loss in enumerate(losses)) / spread
    rest = sum((loss - mean - slope * (step - middle)) ** 2 for step, loss in enumerate(losses))
    return LossFall(-slope, math.sqrt(rest / (count - 2) / spread))


def slower_fall(before: Sequence[float], by_default: Sequence[float], after: Sequence[float]) -> SlowerFall | None:
    """Compare a choice with the default. `before`, `after`: losses of a window by the choice; `by_default`: of the window between these. The mean of the two
    is what the choice would have done in that one, for a loss that falls less and less. None: it falls as fast, or that is in doubt.
    """
    if not all(map(math.isfinite, (*before, *by_default, *after))):
        return None
    first, default, last = map(loss_fall, (before, by_default, after))
    fall, doubt = (first.per_step + last.per_step) / 2, math.hypot(default.doubt, first.doubt / 2, last.doubt / 2)
    lost = default.per_step - fall
    is_slower = default.per_step > 0 and lost > max(SURE * doubt, LOST_SHARE * default.per_step)
    return SlowerFall(fall, default.per_step) if is_slower else None
