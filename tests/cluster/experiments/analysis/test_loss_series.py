from __future__ import annotations

import math

from paceline.cluster.experiments.analysis.loss_series import MOST_POINTS, MOST_SERIES, loss_series, thinned
from tests.cluster.experiments.analysis.made_up import RATE, groups, losses, repeats


def test_the_first_and_the_last_point_stay() -> None:
    kept = thinned(12_345)
    assert (len(kept), kept[0], kept[-1]) == (MOST_POINTS, 0, 12_344)
    assert kept == sorted(set(kept))
    assert thinned(3) == [0, 1, 2]
    assert thinned(0) == []


def test_what_is_not_finite_is_a_gap() -> None:
    (found,) = loss_series(groups(repeats(0, {}, [1.0], series=losses([1.0, math.nan]))))
    assert (found.steps, found.samples, found.seconds, found.losses) == ([1, 2], [10, 20], [1.0, 2.0], [1.0, None])


def test_of_many_configurations_the_chosen_ones_are_told() -> None:
    trials = [repeats(at, {RATE: at}, [1.0], series=losses([1.0]))[0] for at in range(MOST_SERIES + 10)]
    found = loss_series(groups(trials), first=[MOST_SERIES + 5])
    assert [each.configuration for each in found] == [*range(MOST_SERIES - 1), MOST_SERIES + 5]
