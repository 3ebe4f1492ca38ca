"""The time for which something was waited for: none of it while the coordinator was away."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from paceline.cluster.waiting import waited

NOW = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("since", "up_since", "seconds"),
    [(-200, None, 200), (-200, -1000, 200), (-200, -5, 5), (1, -1000, -1), (7200, -5, 5)],
    ids=["not known", "up all the time", "was away", "reported during the step", "before the clock was set back"],
)
def test_time_counts_in_which_a_report_could_be_heard(since: float, up_since: float | None, seconds: float) -> None:
    began = None if up_since is None else NOW + timedelta(seconds=up_since)
    assert waited(NOW + timedelta(seconds=since), began, NOW) == timedelta(seconds=seconds)
