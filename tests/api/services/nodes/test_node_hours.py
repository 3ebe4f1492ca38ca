"""Node-hours of a pool in a month."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from paceline.api.services.nodes.node_hours import NodeHours

START = datetime(2026, 11, 30, 22, 0, tzinfo=UTC)


def test_hours_add_up_look_by_look() -> None:
    count, now = NodeHours.stored(None, START), START
    for nodes in (1, 3, 0, 2):
        now += timedelta(minutes=15)
        count = NodeHours.stored(count.document, now).counted(nodes, now)
    assert (count.month, count.hours) == ("2026-11", pytest.approx(1.5))


def test_a_month_begins_anew_and_is_charged_from_its_first_second() -> None:
    count = NodeHours.stored(None, START).counted(4, START)
    later = datetime(2026, 12, 1, 1, 30, tzinfo=UTC)
    count = NodeHours.stored(count.document, later).counted(4, later)
    assert (count.month, count.hours) == ("2026-12", pytest.approx(6.0))


def test_a_clock_that_is_set_back_takes_nothing_away_and_counts_nothing_twice() -> None:
    count = NodeHours.stored(None, START).counted(1, START + timedelta(hours=1))
    back = count.counted(1, START)
    assert back.counted(1, START + timedelta(hours=1)).hours == pytest.approx(1.0)


def test_a_clock_that_is_in_the_next_month_for_a_moment_takes_nothing_away_and_counts_nothing_twice() -> None:
    """What the month had used was dropped, and nothing was counted until the next one had come: the pool had no limit."""
    count, now = NodeHours.stored(None, START - timedelta(days=10)), START - timedelta(days=9)
    for moment in (now, datetime(2026, 12, 4, tzinfo=UTC), now, now + timedelta(hours=1)):
        count = NodeHours.stored(count.document, moment).counted(1, moment)
    assert (count.month, count.hours) == ("2026-11", pytest.approx(25.0))
    for moment in (START, datetime(2026, 12, 3, tzinfo=UTC), datetime(2026, 12, 5, tzinfo=UTC)):
        count = NodeHours.stored(count.document, moment).counted(1, moment)
    assert (count.month, count.hours) == ("2026-12", pytest.approx(4 * 24.0))


def test_a_clock_that_is_months_behind_for_a_moment_charges_nothing_and_takes_nothing_away() -> None:
    count = NodeHours.stored(None, START - timedelta(hours=1)).counted(2, START)
    past = datetime(2026, 2, 10, tzinfo=UTC)
    behind = NodeHours.stored(count.document, past).counted(2, past)
    assert behind.hours == 0.0
    assert NodeHours.stored(behind.document, START).counted(2, START).hours == pytest.approx(2.0)


def test_counts_of_before_months_were_kept_apart_go_on() -> None:
    known = {"month": "2026-11", "hours": 3.0, "counted_to": START.timestamp()}
    assert NodeHours.stored(known, START).counted(1, START + timedelta(hours=1)).hours == pytest.approx(4.0)


def test_months_are_not_kept_for_ever() -> None:
    count = NodeHours.stored(None, START)
    for month in range(1, 13):
        count = NodeHours.stored(count.document, datetime(2027, month, 1, tzinfo=UTC))
    assert sorted(count.others) == ["2027-09", "2027-10", "2027-11"]
