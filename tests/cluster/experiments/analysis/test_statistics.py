from __future__ import annotations

import statistics as standard
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.cluster.experiments.analysis.statistics import (
    ALPHA,
    can_be_shown,
    coverage,
    enough_repeats,
    estimate,
    holm,
    least_p,
    median,
    permutation_p,
    ratio_estimate,
    usable,
)

values = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=12)


@settings(deadline=None)
@given(values)
def test_the_median_is_that_of_the_standard_library(numbers: list[float]) -> None:
    assert median(numbers) == standard.median(numbers)


@settings(deadline=None)
@given(values)
def test_an_interval_holds_the_median_and_stays_within_the_values(numbers: list[float]) -> None:
    found = estimate(numbers)
    assert found is not None
    assert found.count == len(numbers)
    if len(numbers) == 1:
        assert (found.low, found.high) == (None, None)
    else:
        assert found.low is not None
        assert found.high is not None
        assert min(numbers) <= found.low <= found.value <= found.high <= max(numbers)


@settings(deadline=None)
@given(values, st.floats(0.01, 100))
def test_an_estimate_grows_with_its_unit(numbers: list[float], unit: float) -> None:
    one, other = estimate(numbers), estimate([unit * each for each in numbers])
    assert one is not None
    assert other is not None
    assert other.value == pytest.approx(unit * one.value)
    if one.low is not None:
        assert other.low == pytest.approx(unit * one.low)


def test_an_interval_of_many_values_is_as_wide_as_theory_says() -> None:
    """The standard error of a median of normal values is 1.253 / sqrt(n) (Kendall and Stuart)."""
    found = estimate(np.random.default_rng(1).normal(size=400).tolist())
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * 1.253 / 20, rel=0.25)


def test_three_values_have_their_range_for_an_interval_which_is_right_in_three_cases_of_four() -> None:
    found = estimate([3.0, 1.0, 2.0])
    assert found is not None
    assert (found.low, found.high) == (1.0, 3.0)
    assert coverage(3) == 0.75
    draws = np.random.default_rng(1).normal(size=(4_000, 3))
    assert ((draws.min(axis=1) < 0) & (draws.max(axis=1) > 0)).mean() == pytest.approx(coverage(3), abs=0.03)


def test_nothing_has_no_estimate() -> None:
    assert estimate([]) is None
    assert ratio_estimate([], [1.0]) is None
    assert ratio_estimate([0.0], [1.0]) is None


def test_a_ratio_has_the_uncertainty_of_both() -> None:
    found = ratio_estimate([90.0, 100.0, 110.0], [45.0, 50.0, 55.0])
    assert found is not None
    assert (found.value, found.count) == (2.0, 3)
    assert (found.low, found.high) == pytest.approx((100 / 55, 110 / 50), rel=0.15)
    alone = ratio_estimate([90.0, 100.0, 110.0], [50.0])
    assert alone is not None
    assert (alone.value, alone.low, alone.count) == (2.0, None, 1)


def test_the_exact_test_counts_all_ways_to_deal_the_labels() -> None:
    assert permutation_p([([1, 2, 3, 4], [5, 6, 7, 8])]) == 2 / 70
    assert permutation_p([([1, 2, 3], [4, 5, 6])]) == 2 / 20
    assert permutation_p([([1.0] * 4, [1.0] * 4)]) == 1


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=4), st.lists(st.integers(0, 9), min_size=2, max_size=4))
def test_it_agrees_with_a_plain_loop(first: list[int], second: list[int]) -> None:
    pooled = [*first, *second]

    def shift(chosen: tuple[int, ...]) -> float:
        others = [at for at in range(len(pooled)) if at not in chosen]
        return sum(pooled[at] for at in others) / len(others) - sum(pooled[at] for at in chosen) / len(chosen)

    ways = [abs(shift(chosen)) for chosen in combinations(range(len(pooled)), len(first))]
    expected = sum(each >= ways[0] - 1e-9 for each in ways) / len(ways)
    assert permutation_p([(first, second)]) == pytest.approx(expected)


def test_strata_add_up_what_each_alone_cannot_show() -> None:
    stratum = ([1.0, 1.1, 1.2], [2.0, 2.1, 2.2])
    assert permutation_p([stratum]) == 0.1
    assert permutation_p([stratum, stratum]) == 2 / 400
    assert least_p([stratum, stratum]) == 2 / 400
    assert least_p([([1.0], [2.0, 3.0])]) == 1 / 3


def test_many_ways_are_drawn_and_never_give_nought() -> None:
    stratum = (list(range(10)), list(range(100, 110)))
    assert 0 < permutation_p([stratum]) < 0.001
    assert permutation_p([stratum] * 3) == permutation_p([stratum] * 3)


def test_without_a_difference_one_in_twenty_tests_finds_one() -> None:
    draws = np.random.default_rng(1).normal(size=(1_000, 2, 5))
    found = [permutation_p([(one.tolist(), other.tolist())]) for one, other in draws]
    assert (np.asarray(found) < 0.05).mean() == pytest.approx(0.05, abs=0.02)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), 1e60, 1e-60])
def test_what_cannot_be_reckoned_with_is_no_number(value: float | None) -> None:
    assert usable(value) is None


def test_nought_and_usual_numbers_are_numbers() -> None:
    assert [usable(0.0), usable(-3.5), usable(1e12)] == [0.0, -3.5, 1e12]


def test_three_comparisons_of_four_repeats_cannot_be_shown_and_one_can() -> None:
    of_four, of_six = least_p([([0.0] * 4, [1.0] * 4)]), least_p([([0.0] * 6, [1.0] * 6)])
    assert can_be_shown([of_four]) == [0]
    assert can_be_shown([of_four] * 3) == []
    assert can_be_shown([of_six] * 3) == [0, 1, 2]
    assert can_be_shown([of_four, of_six, of_four, of_six]) == [1, 3]
    assert can_be_shown([]) == []


@given(st.lists(st.sampled_from([1.0, 0.1, 0.0286, 0.0079, 0.0022, 0.0006]), max_size=20))
def test_what_can_be_shown_is_below_the_level_where_all_of_it_is_as_clear_as_can_be(least: list[float]) -> None:
    kept = can_be_shown(least)
    assert all(value < ALPHA for value in holm([least[index] for index in kept]))


@pytest.mark.parametrize(("comparisons", "repeats"), [(0, 4), (1, 4), (2, 5), (3, 5), (6, 5), (7, 6), (50, 7)])
def test_repeats_that_are_enough_are_the_fewest(comparisons: int, repeats: int) -> None:
    assert enough_repeats(comparisons) == repeats
    for count, enough in ((repeats, True), (repeats - 1, False)):
        least = least_p([([0.0] * count, [1.0] * count)])
        assert bool(can_be_shown([least] * max(1, comparisons))) is enough
