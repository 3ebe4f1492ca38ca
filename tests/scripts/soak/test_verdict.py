"""What grows is seen to grow, and what only trembles is not."""

from __future__ import annotations

import pytest

from scripts.soak.readings import Reading
from scripts.soak.verdict import ENOUGH, trends

WARM_UP = 100.0


def readings(name: str, values: list[float], first_at: float = WARM_UP) -> list[Reading]:
    return [Reading(first_at + number, {name: value}) for number, value in enumerate(values)]


@pytest.mark.parametrize(("name", "slope"), [("coordinator.memory_mb", 2.0), ("local-1.descriptors", 1.0), ("local-1.threads", 0.5)])
def test_what_grows_slowly_is_seen(name: str, slope: float) -> None:
    (trend,) = trends(readings(name, [50 + slope * minute for minute in range(60)]), WARM_UP)
    assert not trend.is_flat


@pytest.mark.parametrize("name", ["coordinator.memory_mb", "metrics.db.mb", "api_p99_ms"])
def test_what_trembles_is_flat(name: str) -> None:
    (trend,) = trends(readings(name, [100.0 + (7 * number) % 10 for number in range(60)]), WARM_UP)
    assert trend.is_flat


def test_a_history_grows_with_its_jobs_and_no_faster() -> None:
    sizes = readings("paceline.db.mb", [float(number) for number in range(60)])
    shares = readings("paceline.db.kb_per_job", [20.0 + 0.2 * number for number in range(60)])
    share, size = trends([*sizes, *shares], WARM_UP)
    assert (share.name, share.is_flat) == ("paceline.db.kb_per_job", False)
    assert (size.name, size.is_flat) == ("paceline.db.mb", True)


def test_what_a_warm_up_needs_is_not_held_against_it() -> None:
    warming = readings("coordinator.memory_mb", [10.0 * number for number in range(20)], first_at=0.0)
    (trend,) = trends([*warming, *readings("coordinator.memory_mb", [200.0] * 20)], WARM_UP)
    assert (trend.first, trend.last) == (200.0, 200.0)


def test_too_few_readings_are_no_verdict() -> None:
    with pytest.raises(ValueError, match="let it run longer"):
        trends(readings("metrics.db.mb", [1.0] * (ENOUGH - 1)), WARM_UP)
