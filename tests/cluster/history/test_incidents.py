"""An outage is cut into phases without a hole and without a remainder."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.history.incidents import PhaseName, phases

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
NAMES: tuple[PhaseName, ...] = ("detect", "decide", "fence", "place", "rebuild", "transfer", "first_step")


def at(seconds: float | None) -> datetime | None:
    return None if seconds is None else START + timedelta(seconds=seconds)


def cut(*ends: float | None, over: float, is_open: bool = False) -> list[tuple[str, float]]:
    moments = [(name, at(end)) for name, end in zip(NAMES, ends, strict=True)]
    found = phases(START, moments, START + timedelta(seconds=over), is_open=is_open)
    assert [phase.under_way for phase in found] == [False] * (len(found) - is_open) + [True] * is_open
    return [(phase.name, round(phase.seconds, 6)) for phase in found]


def test_each_phase_reaches_from_one_moment_to_the_next() -> None:
    assert cut(1, 2, 4, 5, 7, 8, 10, over=10) == list(zip(NAMES, (1, 1, 2, 1, 2, 1, 2), strict=True))


def test_time_without_a_report_is_part_of_the_phase_after_it() -> None:
    assert cut(1, 2, 4, None, None, 8, 10, over=10) == [("detect", 1), ("decide", 1), ("fence", 2), ("transfer", 4), ("first_step", 2)]


def test_an_open_one_shows_where_it_is_and_for_how_long() -> None:
    assert cut(1, 2, 4, None, None, None, None, over=9, is_open=True) == [("detect", 1), ("decide", 1), ("fence", 2), ("place", 5)]


def test_one_that_was_cut_short_ends_in_the_phase_it_had_reached() -> None:
    assert cut(1, 2, 4, 5, None, None, None, over=9)[-1] == ("rebuild", 4)


@given(rng=st.randoms(use_true_random=False))
def test_clocks_that_disagree_make_no_phase_negative(rng: random.Random) -> None:
    ends = [rng.choice([None, rng.uniform(-5, 15)]) for _ in NAMES]
    found = cut(*ends[:-1], 10.0, over=10)
    assert all(seconds >= 0 for _, seconds in found)
    assert sum(seconds for _, seconds in found) == pytest.approx(10)
