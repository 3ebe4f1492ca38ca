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
    total = [0.0, *accumulate(costs)]
    slowest = list(total)  # by number of units: of the slowest stage, cut as well as can be; with one stage to begin with
    cuts: list[list[int]] = []
    for stage in range(1, stages):
        best = [min((max(slowest[at], total[end] - total[at]), -at) for at in range(stage, end)) for end in range(stage + 1, len(total))]
        slowest = [*[0.0] * (stage + 1), *(cost for cost, _ in best)]
        cuts.append([*[0] * (stage + 1), *(-at for _, at in best)])
    bounds = [len(costs)]
    for choice in reversed(cuts):
        bounds.append(choice[bounds[-1]])
    bounds.append(0)
    return tuple(range(start, end) for end, start in pairwise(bounds))[::-1]
