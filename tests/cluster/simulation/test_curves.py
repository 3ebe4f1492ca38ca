"""The curves of simulated jobs."""

from __future__ import annotations

import math

from paceline.cluster.simulation.curves import curve_of, learning_rate
from paceline.training.schema.optimizer import Schedule
from tests import factories
from tests.cluster.simulation.test_step_times import spec


def test_a_loss_falls_from_guessing_and_ends_above_nothing() -> None:
    curve = curve_of("job", spec(), 2_000)
    assert math.isclose(curve.loss(1), math.log(50304), rel_tol=0.1)
    means = [sum(curve.loss(step + each) for each in range(20)) / 20 for step in (1, 100, 500, 1_900)]
    assert means == sorted(means, reverse=True)
    assert curve.floor < means[-1] < means[0] / 2


def test_a_step_that_is_done_again_has_the_same_loss_again() -> None:
    one, again, another = curve_of("a", spec(), 100), curve_of("a", spec(), 100), curve_of("b", spec(), 100)
    assert [one.loss(step) for step in range(50)] == [again.loss(step) for step in range(50)]
    assert one.loss(7) != another.loss(7)


def test_held_out_samples_are_a_little_harder_and_accuracy_rises() -> None:
    curve = curve_of("job", factories.job_spec(), 1_000)
    assert curve.eval_loss(900) > curve.loss(900) * 0.98
    assert 0 < curve.accuracy(1) < curve.accuracy(900) < 1


def test_a_learning_rate_warms_up_and_comes_down() -> None:
    schedule = Schedule(warmup_steps=10, min_ratio=0.1)
    assert learning_rate(1.0, schedule, 5, 100) == 0.5
    assert learning_rate(1.0, schedule, 10, 100) == 1.0
    assert math.isclose(learning_rate(1.0, schedule, 100, 100), 0.1)
