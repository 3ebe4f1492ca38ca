"""Loops of a process that look again and again wake up together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.monitoring.beats import until_beat


@given(st.floats(min_value=0.0, max_value=1e7), st.sampled_from([0.25, 0.5, 1.0, 5.0]))
def test_a_wait_ends_at_a_multiple_of_its_period_and_is_neither_short_nor_much_longer(now: float, period: float) -> None:
    left = until_beat(period, now)
    assert 0.25 * period <= left <= 1.25 * period
    assert (now + left) / period == pytest.approx(round((now + left) / period), abs=1e-6)


def test_a_slower_loop_wakes_up_with_a_faster_one() -> None:
    assert [12.625 + until_beat(period, 12.625) for period in (0.25, 0.5, 1.0)] == [12.75, 13.0, 13.0]
