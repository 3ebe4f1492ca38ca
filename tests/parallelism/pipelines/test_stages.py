"""Units are partitioned into stages so that the slowest stage is as fast as possible."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.parallelism.pipelines.stages import TooFewUnitsError, partition_units


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[float], int]:
    costs = draw(st.lists(st.sampled_from([0.0, 1.0, 2.0, 5.0, 7.5]), min_size=1, max_size=8))
    return costs, draw(st.integers(1, len(costs)))


def slowest(costs: Sequence[float], bounds: Sequence[int]) -> float:
    return max(sum(costs[start:end]) for start, end in pairwise(bounds))


@settings(deadline=None)  # a busy machine takes its time
@given(chains())
def test_no_other_cut_has_a_faster_slowest_stage(chain: tuple[list[float], int]) -> None:
    costs, stages = chain
    found = partition_units(costs, stages)
    assert len(found) == stages
    assert all(found)
    assert [unit for stage in found for unit in stage] == list(range(len(costs)))
    others = ((0, *inner, len(costs)) for inner in combinations(range(1, len(costs)), stages - 1))
    assert slowest(costs, [0, *(stage.stop for stage in found)]) == min(slowest(costs, other) for other in others)


def test_more_stages_than_units_are_refused() -> None:
    with pytest.raises(TooFewUnitsError, match="4 pipeline stages, but the model has 3 units to put into them; use 3 or fewer"):
        partition_units([1.0, 1.0, 1.0], 4)
