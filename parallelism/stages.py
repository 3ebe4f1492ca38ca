"""Where to cut a chain of units into stages: so that the slowest one is as fast as can be. Pure and torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise


class TooFewUnitsError(ValueError):
    """There are more stages than there are units to put into them."""


def cut(costs: Sequence[float], stages: int) -> tuple[range, ...]:
    """The units of each stage, in order, none without one. `costs`: of each unit, in any unit of measure, none negative.

    The dynamic programme for linear partitions (Skiena, The Algorithm Design Manual, 2020, 10.7), with O(units^2 * stages) steps.
    """
    if stages > len(costs):
        raise TooFewUnitsError(
            f"{stages} pipeline stages, but the model has {len(costs)} units to put into them; use {len(costs)} or fewer"
        )
    before = [0.0, *accumulate(costs)]
    # By the number of units that are cut already: the cost of the slowest stage, and where each begins.
    best: dict[int, tuple[float, tuple[int, ...]]] = {end: (before[end], (0,)) for end in range(1, len(before))}
    for stage in range(1, stages):
        best = {
            end: min((max(best[start][0], before[end] - before[start]), (*best[start][1], start)) for start in range(stage, end))
            for end in range(stage + 1, len(before))
        }
    _, starts = best[len(costs)]
    return tuple(range(start, end) for start, end in pairwise((*starts, len(costs))))
