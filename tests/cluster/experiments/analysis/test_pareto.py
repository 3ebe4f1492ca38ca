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


def test_a_saving_of_memory_within_noise_does_not_bring_a_slow_one_onto_it() -> None:
    """Medians of docs/experiments/ddp_vs_fsdp.csv: Python and torch are nearly all of the memory, and one process has 1.7 % less."""
    assert front((0.0636, 353.9e6, 2.006), (0.0440, 360.1e6, 2.006)) == {1}
    assert front((0.0636, 300.0e6, 2.006), (0.0440, 360.1e6, 2.006)) == {0, 1}
    assert front((1.000, 10, 0.5), (1.015, 10, 0.5)) == {0, 1}, "equally fast, and equal in all else"


def test_a_difference_within_the_interval_of_repeats_does_not_count() -> None:
    def of(noise: list[float]) -> set[int]:
        slow = repeats(0, {RATE: 1}, [2.0] * 5, metric=[0.50 + each for each in noise])
        fast = repeats(5, {RATE: 2}, [1.0] * 5, metric=[0.51 + each for each in noise])
        return pareto_front(groups([*slow, *fast]), "minimize")

    assert of([0.02, -0.02, 0.01, -0.01, 0.0]) == {1}
    assert of([0.002, -0.002, 0.001, -0.001, 0.0]) == {0, 1}


def test_a_row_of_small_differences_leaves_a_best_one() -> None:
    assert front(*((1.015**at, 100, 0.5) for at in range(9))) == {0, 1}


def test_what_a_halving_pruned_is_not_on_it() -> None:
    pruned = repeats(0, {RATE: 1}, [1.0], state="pruned", peak_memory_bytes=1.0)
    ended = repeats(1, {RATE: 2}, [2.0], metric=0.1, peak_memory_bytes=2.0)
    assert pareto_front(groups([*pruned, *ended]), "minimize") == {1}
    assert pareto_front(groups(pruned), "minimize") == set()


def test_a_figure_that_one_of_them_lacks_does_not_count() -> None:
    assert front((1.0, None, 0.5), (2.0, 5, 0.5)) == {0}


def test_nothing_measured_has_no_front() -> None:
    assert pareto_front([], "minimize") == set()
