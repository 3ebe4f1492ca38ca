"""Which steps of a job count for its speed: the first ones compile, allocate and fill caches. Pure."""

from __future__ import annotations

#: Steps that warm up: a fifth of what there is, at most so many.
WARM_UP_STEPS, WARM_UP_SHARE = 10, 5


def first_steady_step(first: int, last: int) -> int:
    """Return the first step that counts of a job that has done the steps from `first` to `last`."""
    return first + min(WARM_UP_STEPS, (last - first + 1) // WARM_UP_SHARE)
