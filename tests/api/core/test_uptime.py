"""When a process has been up without a break: from its first turn, its last stall, or the last step of its clock."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from paceline.api.core.uptime import STALL_SECONDS, Uptime
from tests.factories import START


def noted(*seconds: float) -> Uptime:
    uptime = Uptime()
    for each in seconds:
        uptime.note(START + timedelta(seconds=each))
    return uptime


@pytest.mark.parametrize(
    ("turns", "since"),
    [((0,), 0), ((0, 1, 0.5, 3), 0), ((0, 1, STALL_SECONDS + 2, STALL_SECONDS + 3), STALL_SECONDS + 2), ((0, 1, -7200, -7199), -7200)],
    ids=["start", "no break", "stall", "clock set back"],
)
def test_it_is_up_since_its_last_break(turns: tuple[float, ...], since: float) -> None:
    assert noted(*turns).since == START + timedelta(seconds=since)


@pytest.mark.parametrize(
    ("turns", "since"),
    [(((0, 0), (5, 5)), 0), (((0, 0), (600, 600)), 0), (((0, 0), (7205, 5), (7206, 6)), 7205), (((0, 0), (-3600, 1), (-3599, 2)), -3600)],
    ids=["even", "stall", "set forward", "set back"],
)
def test_the_clock_is_steady_since_it_was_last_set(turns: tuple[tuple[float, float], ...], since: float) -> None:
    passed = 0.0
    uptime = Uptime(monotonic=lambda: passed)
    for wall, passed in turns:  # noqa: B007 - the clock above reads it
        uptime.note(START + timedelta(seconds=wall))
    assert uptime.clock_steady_since == START + timedelta(seconds=since)
    assert uptime.clock_step == sum(wall - before[0] - (passed - before[1]) for before, (wall, passed) in pairwise(turns))


def test_a_process_that_takes_over_has_heard_nobody_before() -> None:
    uptime = noted(0, 1)
    uptime.note(START + timedelta(seconds=2), anew=True)
    assert uptime.since == START + timedelta(seconds=2)
