"""Whether a loss is higher than it has been: by more than it scatters, in two windows one after the other."""

from __future__ import annotations

import random

import pytest

from paceline.parallelism.communication.loss_level import LossLevel


def window(level: float, steps: int, scatter: float, draw: random.Random) -> list[float]:
    return [level + draw.gauss(0.0, scatter) for _ in range(steps)]


def test_the_second_window_in_a_row_that_is_higher_says_so() -> None:
    draw, level = random.Random(0), LossLevel()
    assert [level.rises(window(of, 32, 0.1, draw)) for of in (5.0, 3.0, 4.0, 3.0, 4.0, 4.0)] == [False] * 5 + [True]


@pytest.mark.parametrize("steps", [6, 32])
def test_chance_is_no_reason_in_thousands_of_windows(steps: int) -> None:
    draw, level = random.Random(0), LossLevel()
    assert not any(level.rises(window(3.0, steps, 0.3, draw)) for _ in range(5000))


def test_little_is_no_reason_however_certain_it_is() -> None:
    level = LossLevel()
    assert not any(level.rises([of] * 32) for of in (3.0, 3.1, 3.1, 3.1))
    assert not level.rises([3.2] * 32)
    assert level.rises([3.2] * 32)


def test_a_loss_that_falls_fast_scatters_no_more_for_it() -> None:
    level = LossLevel()
    for first in (10.0, 6.8, 3.6):
        assert not level.rises([first - 0.1 * step for step in range(32)])
    assert not level.rises([4.5] * 32)
    assert level.rises([4.5] * 32)
