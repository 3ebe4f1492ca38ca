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
