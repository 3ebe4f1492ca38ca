"""Moments as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from paceline.cli.errors import UsageProblem
from paceline.cli.moments import moment, seconds

NOW = datetime(2026, 11, 25, 14, 30, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ago"),
    [("90s", timedelta(seconds=90)), ("10m", timedelta(minutes=10)), ("1h30m", timedelta(minutes=90)), ("2d", timedelta(days=2))],
)
def test_a_length_of_time_is_so_long_ago(text: str, ago: timedelta) -> None:
    assert moment("--since", text, NOW) == NOW - ago


def test_a_time_of_day_is_the_last_one() -> None:
    local = NOW.astimezone()
    earlier, later = local - timedelta(minutes=2), local + timedelta(minutes=2)
    assert moment("--since", f"{earlier:%H:%M}", NOW) == earlier.replace(second=0)
    assert moment("--since", f"{later:%H:%M:%S}", NOW) == later - timedelta(days=1)


def test_a_date_has_its_zone_or_is_local() -> None:
    assert moment("--until", "2026-11-25T14:05Z", NOW) == datetime(2026, 11, 25, 14, 5, tzinfo=UTC)
    assert moment("--until", "2026-11-25 14:05", NOW) == datetime(2026, 11, 25, 14, 5).astimezone()
    assert moment("--until", None, NOW) is None


@pytest.mark.parametrize("text", ["", "soon", "25:00", "10", "999999999999d", "2026-13-01"])
def test_anything_else_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageProblem, match=r"--since .* is not a time") as refused:
        moment("--since", text, NOW)
    assert "14:05" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90.0), ("0.5", 0.5), ("1e2", 100.0), ("90s", 90.0), ("10m", 600.0), (" 1h30m ", 5400.0), ("2d", 172_800.0), (7.0, 7.0)],
)
def test_a_length_of_time_is_read_in_all_forms_that_people_type(text: str | float, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "s", "5x", "-1", "nan", "inf", "1h 30", "m10"])
def test_what_is_no_length_of_time_is_refused_by_its_value(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        seconds(text)
