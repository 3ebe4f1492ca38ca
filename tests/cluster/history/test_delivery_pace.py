"""Retries become rarer and end; a channel gets a few messages at once, and then one now and then."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.history.delivery_pace import (
    JITTER,
    LONGEST_RETRY,
    LONGEST_RETRY_AFTER,
    MOST_AT_ONCE,
    MOST_ATTEMPTS,
    ONE_EVERY,
    plan_messages,
    retry_delay,
)
from tests.factories import START


def test_delays_grow_threefold_up_to_an_hour_and_end() -> None:
    delays = [retry_delay(attempt, None, 0.5) for attempt in range(1, MOST_ATTEMPTS + 1)]
    assert [delay and round(delay.total_seconds()) for delay in delays] == [5, 15, 45, 135, 405, 1215, 3600, None]


def test_jitter_is_a_fifth_at_most() -> None:
    assert [retry_delay(2, None, chance) for chance in (0.0, 1.0)] == [
        timedelta(seconds=15 * (1 - JITTER)),
        timedelta(seconds=15 * (1 + JITTER)),
    ]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (1.0, timedelta(seconds=5)),
        (60.0, timedelta(minutes=1)),
        (7200.0, timedelta(hours=2)),
        (1e9, LONGEST_RETRY_AFTER),
        (-5.0, timedelta(seconds=5)),
    ],
)
def test_what_a_server_asks_for_is_waited_for_within_bounds(asked: float, expected: timedelta) -> None:
    assert retry_delay(1, asked, 0.5) == expected


def test_the_last_attempt_is_the_last_whatever_the_server_asks_for() -> None:
    assert retry_delay(MOST_ATTEMPTS, 1.0, 0.5) is None
    assert retry_delay(MOST_ATTEMPTS - 1, None, 1.0) == LONGEST_RETRY * (1 + JITTER)


@pytest.mark.parametrize(
    ("waiting", "tokens", "alone", "together", "left"),
    [(0, 10.0, 0, 0, 10.0), (3, 10.0, 3, 0, 7.0), (10, 10.0, 10, 0, 0.0), (300, 10.0, 9, 291, 0.0), (5, 1.5, 0, 5, 0.5)],
)
def test_the_last_token_of_a_burst_takes_all_that_is_left(waiting: int, tokens: float, alone: int, together: int, left: float) -> None:
    plan = plan_messages(waiting, tokens, START, START)
    assert (plan.alone, plan.together, plan.tokens, plan.wait) == (alone, together, left, None)


def test_without_a_token_it_waits_for_the_next_one() -> None:
    plan = plan_messages(5, 0.0, START, START + ONE_EVERY / 3)
    assert (plan.alone, plan.together) == (0, 0)
    assert plan.wait is not None
    assert abs(plan.wait - ONE_EVERY * 2 / 3) < timedelta(milliseconds=1)
    later = plan_messages(5, plan.tokens, START + ONE_EVERY / 3, START + ONE_EVERY / 3 + plan.wait)
    assert (later.alone, later.together) == (0, 5)


def test_a_quiet_channel_saves_up_no_more_than_a_burst() -> None:
    assert plan_messages(0, 0.0, START, START + timedelta(days=30)).tokens == MOST_AT_ONCE


@given(st.integers(0, 2000), st.floats(0, MOST_AT_ONCE), st.floats(-100, 1e6))
def test_nothing_is_lost_and_no_more_is_sent_than_there_are_tokens(waiting: int, tokens: float, seconds: float) -> None:
    plan = plan_messages(waiting, tokens, START, START + timedelta(seconds=seconds))
    assert plan.wait is not None or plan.alone + plan.together == waiting
    assert 0 <= plan.alone + bool(plan.together) <= MOST_AT_ONCE
    assert -1e-6 <= plan.tokens <= MOST_AT_ONCE
