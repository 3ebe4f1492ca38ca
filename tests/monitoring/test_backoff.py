"""Delays between attempts."""

from __future__ import annotations

import pytest

from paceline.monitoring.backoff import Backoff


def longest() -> float:
    return 1.0


def test_delays_double_up_to_the_longest() -> None:
    backoff = Backoff(0.1, 1.0, fraction=longest)
    assert [backoff.next_seconds() for _ in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_after_a_success_they_begin_anew() -> None:
    backoff = Backoff(0.1, 1.0, fraction=longest)
    for _ in range(3):
        backoff.next_seconds()
    backoff.reset()
    assert backoff.next_seconds() == pytest.approx(0.1)


def test_the_jitter_is_the_whole_delay() -> None:
    drawn = iter([0.0, 0.5, 0.999])
    backoff = Backoff(2.0, 8.0, fraction=lambda: next(drawn))
    assert [backoff.next_seconds() for _ in range(3)] == pytest.approx([0.0, 2.0, 7.992])


def test_two_that_fail_together_do_not_wait_equally_long() -> None:
    assert Backoff(1.0, 60.0).seconds_after(3) != Backoff(1.0, 60.0).seconds_after(3)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1.0), (2, 2.0), (5, 15.0), (100_000, 15.0)])
def test_who_counts_alone_gets_the_same_delays(failures: int, seconds: float) -> None:
    assert Backoff(1.0, 15.0, fraction=longest).seconds_after(failures) == seconds


def test_a_first_delay_beyond_the_longest_is_cut() -> None:
    assert Backoff(3600.0, 10.0, fraction=longest).next_seconds() == 10.0


async def test_a_pause_sleeps_for_the_delay() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    backoff = Backoff(0.1, 1.0, fraction=longest, sleep=sleep)
    await backoff.pause()
    await backoff.pause()
    assert slept == pytest.approx([0.1, 0.2])
