from __future__ import annotations

import numpy as np

from paceline.cluster.experiments.analysis.outliers import outliers
from tests.cluster.experiments.analysis.made_up import RATE, groups, repeats


def test_a_planted_outlier_is_named() -> None:
    trials = [trial for at in range(4) for trial in repeats(3 * at, {RATE: at}, [1.0, 1.01, 0.99])]
    trials[4] = repeats(3, {RATE: 1}, [1.0, 1.6], job_id="J")[1]
    (found,) = outliers(groups(trials))
    assert (found.trial, found.job_id, found.figure, found.value, found.median) == (4, "J", "step_seconds", 1.6, 1.0)
    assert found.text == "Trial 4 (lr 1, repeat 2) is 60 % slower than the median of its repeats."


def test_noise_alone_has_none() -> None:
    draws = np.random.default_rng(1).normal(1, 0.05, size=(300, 3)).tolist()
    trials = [trial for at, steps in enumerate(draws) for trial in repeats(3 * at, {RATE: at}, steps)]
    assert outliers(groups(trials)) == []


def test_noise_of_a_metric_that_does_not_shrink_with_it_has_none() -> None:
    draws = np.random.default_rng(1)
    trials = [
        trial
        for at, level in enumerate([0.2, *[2.0] * 30])
        for trial in repeats(4 * at, {RATE: at}, [1.0] * 4, metric=draws.normal(level, 0.02, 4).tolist())
    ]
    assert outliers(groups(trials)) == []


def test_of_two_repeats_nobody_can_say_which_is_wrong() -> None:
    trials = [trial for at in range(9) for trial in repeats(2 * at, {RATE: at}, [1.0, 1.0])]
    trials[1] = repeats(0, {RATE: 0}, [1.0, 9.0])[1]
    assert outliers(groups(trials)) == []


def test_a_few_percent_are_no_outlier_however_equal_the_others_are() -> None:
    trials = [trial for at in range(4) for trial in repeats(3 * at, {RATE: at}, [1.0, 1.0, 1.02])]
    assert outliers(groups(trials)) == []
