"""From measured times to limits: nobody who only jitters is ever called stalled."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from paceline.training.timing.phase_times import (
    ENOUGH_STEPS,
    HEARING_SECONDS,
    UNMEASURED,
    WARM_UP_STEPS,
    WINDOW,
    PhaseLimits,
    PhaseTimes,
    limits_of_others,
    limits_of_steps,
    percentile_99,
)

STEPS = 100_000


def jittered(base: float, draw: Callable[[random.Random], float]) -> tuple[int, float]:
    """Steps past their limit, of 10^5; and the narrowest that one came to it."""
    random_source, times, alarms, closest = random.Random(7), PhaseTimes(), 0, 0.0
    limits = times.limits("step")
    for number in range(STEPS):
        seconds = base * draw(random_source)
        if number % 25 == 0:  # the watchdog asks more rarely still
            limits = times.limits("step")
        assert limits is not None
        alarms += seconds >= limits.stall
        closest = max(closest, seconds / limits.stall)
        times.note("step", seconds)
    return alarms, closest


@pytest.mark.parametrize("base", [0.004, 0.1, 2.0, 20.0])
def test_step_times_that_jitter_by_half_raise_no_alarm(base: float) -> None:
    alarms, closest = jittered(base, lambda source: source.uniform(0.5, 1.5))
    assert alarms == 0
    assert closest < 0.6


def test_step_times_with_a_long_tail_raise_no_alarm() -> None:
    assert jittered(0.05, lambda source: source.lognormvariate(0, 0.5))[0] == 0


@pytest.mark.parametrize("seconds", [0.01, 0.2, 5.0])
def test_a_silent_peer_is_noticed_within_the_promise(seconds: float) -> None:
    """The figure is three times the 99th percentile and a second; one step and half a second of it are left for the recovery."""
    limits = limits_of_steps([seconds] * WINDOW, None)
    assert limits.stall == pytest.approx(2 * seconds + 0.5)
    assert limits.patience > 10 * limits.stall or limits.patience >= 10 * seconds + 30


def test_before_enough_is_measured_the_limits_are_generous() -> None:
    assert limits_of_steps([], 5.0) == UNMEASURED
    limits = limits_of_steps([0.01] * (ENOUGH_STEPS - 1), 5.0)
    assert (limits.stall, limits.patience) == (pytest.approx(5.1), UNMEASURED.patience)
    assert limits_of_others([3.0], None) == UNMEASURED


def test_the_first_steps_of_a_generation_are_not_counted() -> None:
    times = PhaseTimes()
    for seconds in [30.0] * WARM_UP_STEPS + [0.1] * ENOUGH_STEPS:
        times.note("step", seconds)
    limits = times.limits("step")
    assert limits is not None
    assert limits.stall == pytest.approx(0.7)


def test_with_fewer_ranks_each_has_more_to_do() -> None:
    times = PhaseTimes()
    for _ in range(WARM_UP_STEPS + WINDOW):
        times.note("step", 1.0)
    times.enter_world(3, 2)
    building = times.limits("step")
    for _ in range(WARM_UP_STEPS):
        times.note("step", 60.0)
    settled = times.limits("step")
    assert settled is not None
    assert building is not None
    assert settled.stall == pytest.approx(2 * 1.5 + 0.5)
    assert building.stall > settled.stall
    times.enter_world(2, 3)  # more ranks: no faster before it is measured
    assert times.limits("rest") is None


def test_the_users_limit_is_for_hangs_and_never_below_what_is_usual() -> None:
    usual = [10.0] * WINDOW
    assert limits_of_steps(usual, 300.0).patience == 300.0
    assert limits_of_steps(usual, 5.0) == PhaseLimits(20.5, 20.5 + HEARING_SECONDS)
    assert limits_of_steps(usual, 300.0).stall == 20.5


def test_evaluations_and_saves_have_a_limit_of_their_own() -> None:
    limits = limits_of_others([2.0, 3.0], None)
    assert (limits.stall, limits.patience) == (40.0, 70.0)


def test_a_save_takes_as_long_as_it_is_written_behind_steps() -> None:
    """Not as long as the training thread is in it: one day it has to wait for all of it."""
    times = PhaseTimes()
    for _ in range(ENOUGH_STEPS):
        times.note("save", 0.01)
    assert times.limits("save") == UNMEASURED
    for seconds in (50.0, 60.0):
        times.saved(seconds)
    limits = times.limits("save")
    assert limits is not None
    assert limits.stall == 610.0


def test_the_percentile() -> None:
    assert percentile_99([1.0]) == 1.0
    assert percentile_99([*map(float, range(1000))]) == 990.0
