from __future__ import annotations

from typing import Literal

from paceline.cluster.experiments.analysis.pareto import pareto_front
from tests.cluster.experiments.analysis.made_up import RATE, groups, repeats


def front(*rows: tuple[float, float | None, float | None], goal: Literal["minimize", "maximize"] = "minimize") -> set[int]:
    trials = [
        repeats(at, {RATE: at}, [seconds], peak_memory_bytes=memory, metric=metric)[0] for at, (seconds, memory, metric) in enumerate(rows)
    ]
    return pareto_front(groups(trials), goal)


def test_what_is_worse_in_all_is_not_on_the_front() -> None:
    assert front((1.0, 10, 0.5), (2.0, 5, 0.5), (2.0, 11, 0.6)) == {0, 1}


def test_the_goal_turns_the_metric() -> None:
    rows = ((1.0, 10, 0.5), (1.0, 10, 0.6))
    assert (front(*rows), front(*rows, goal="maximize")) == ({0}, {1})


def test_equal_ones_are_all_on_it() -> None:
    assert front((1.0, 10, 0.5), (1.0, 10, 0.5)) == {0, 1}


def test_a_figure_that_one_of_them_lacks_does_not_count() -> None:
    assert front((1.0, None, 0.5), (2.0, 5, 0.5)) == {0}


def test_nothing_measured_has_no_front() -> None:
    assert pareto_front([], "minimize") == set()
