from __future__ import annotations

import pytest

from paceline.parallelism.data_parallel.early_exchange import TIMED, WARM_UP, ExchangeTrial


def choices(early: float, after: float, steps: int) -> list[bool]:
    """What each step does where an early exchange and one after backward take so long."""
    trial, found = ExchangeTrial(), []
    for _ in range(steps):
        found.append(trial.early)
        trial.timed(early if trial.early else after)
    return found


@pytest.mark.parametrize(("early", "after", "chosen"), [(0.8, 1.0, True), (1.0, 0.8, False), (1.0, 1.0, False), (0.99, 1.0, False)])
def test_the_faster_kind_is_kept_and_an_even_match_is_left_as_it_was(early: float, after: float, chosen: bool) -> None:
    tried = WARM_UP + 2 * TIMED
    found = choices(early, after, tried + 5)
    assert found[:WARM_UP] == [False]
    assert sum(found[:tried]) == TIMED
    assert found[tried:] == [chosen] * 5


def test_one_slow_step_decides_nothing() -> None:
    trial = ExchangeTrial()
    for step in range(WARM_UP + 2 * TIMED):
        trial.timed(100.0 if step == WARM_UP else 0.8 if trial.early else 1.0)
    assert trial.early
