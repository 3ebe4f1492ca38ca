from __future__ import annotations

import math

from paceline.cluster.experiments.best_trial import BestTrial, ComparedTrial, best_trial
from paceline.cluster.experiments.facts import Rung
from paceline.cluster.experiments.spec import Metric

LOSS, ACCURACY = Metric(name="eval_loss"), Metric(name="accuracy", goal="maximize")


def at_rungs(index: int, *values: float | None) -> ComparedTrial:
    return ComparedTrial(index, "paused", values[-1], [Rung(10 * 2**at, value) for at, value in enumerate(values)])


def test_the_goal_of_the_metric_counts_and_of_equal_ones_the_first() -> None:
    trials = [ComparedTrial(at, "completed", value) for at, value in enumerate((0.5, 0.2, 0.9, 0.2, 0.9))]
    assert (best_trial(LOSS, trials), best_trial(ACCURACY, trials)) == (BestTrial(1, 0.2), BestTrial(2, 0.9))


def test_what_failed_was_cancelled_or_is_not_finite_is_never_the_best() -> None:
    lost = [ComparedTrial(0, "failed", 0.1), ComparedTrial(1, "cancelled", 0.1), ComparedTrial(2, "completed", math.nan)]
    assert best_trial(LOSS, lost) == BestTrial()
    assert best_trial(LOSS, [*lost, ComparedTrial(3, "running", 0.5)]).trial == 3


def test_of_a_halving_those_that_came_furthest_are_compared_by_the_metric_at_their_rung() -> None:
    assert best_trial(LOSS, [at_rungs(0, 0.1), at_rungs(1, 0.5, 0.4), at_rungs(2, 0.6, 0.3)]) == BestTrial(2, 0.3)
    assert best_trial(LOSS, [at_rungs(0, 0.4)._replace(state="pruned"), at_rungs(1, 0.5)]).trial == 0
    assert best_trial(LOSS, [at_rungs(0, 0.1, 0.1)._replace(state="failed"), at_rungs(1, 0.5)]).trial == 1


def test_a_trial_that_diverged_on_its_way_stands_where_it_was_last_finite() -> None:
    assert best_trial(LOSS, [at_rungs(0, 0.3, None), at_rungs(1, 0.4)]) == BestTrial(0, 0.3)
    assert best_trial(LOSS, [at_rungs(0, None), at_rungs(1, 0.4)]).trial == 1
