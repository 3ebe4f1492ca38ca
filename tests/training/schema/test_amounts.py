"""Times as specs and sentences have them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from paceline.training.schema.amounts import read_time, written_time
from paceline.training.spec.job import JobSpec

SCRIPT = {"name": "mine", "script": {"path": "train.py"}}


@pytest.mark.parametrize(
    ("seconds", "text"), [(1, "1s"), (90, "1m30s"), (5400, "1h30m"), (2 * 86_400, "2d"), (90_061, "1d1h1m1s"), (0, "0s"), (59.6, "1m")]
)
def test_a_time_is_written_as_it_can_be_read(seconds: float, text: str) -> None:
    assert written_time(seconds) == text
    assert read_time(text) == round(seconds)


@pytest.mark.parametrize(("given", "seconds"), [(90, 90), ("90s", 90), ("1h30m", 5400), ("2d", 172_800), ("1.5h", 5400), (None, None)])
def test_a_time_limit_is_seconds_or_a_time_with_units(given: object, seconds: int | None) -> None:
    assert JobSpec.model_validate(SCRIPT | {"time_limit": given}).time_limit == seconds


@pytest.mark.parametrize("given", [0, -5, "soon", "02:00:00", "400d", True, 1.5])
def test_any_other_time_limit_is_refused_with_what_would_do(given: object) -> None:
    with pytest.raises(ValidationError, match="use a time from 1 s to 366 d, as 90s, 1h30m or 2d"):
        JobSpec.model_validate(SCRIPT | {"time_limit": given})


@pytest.mark.parametrize(
    ("given", "seconds"), [(600, 600), (2.5, 2.5), ("10m", 600), ("1h30m", 5400), ("1.5s", 1.5), ("600", 600), (".5e3", 500), (None, None)]
)
def test_hang_seconds_may_be_given_with_units_and_are_kept_as_a_number(given: object, seconds: float | None) -> None:
    """`time_limit` took `10m`, and this did not."""
    spec = JobSpec.model_validate(SCRIPT | {"fault_tolerance": {"hang_seconds": given}})
    assert spec.model_dump(mode="json")["fault_tolerance"]["hang_seconds"] == seconds


@pytest.mark.parametrize("given", ["soon", "10 parsecs", "02:00"])
def test_any_other_text_of_hang_seconds_is_refused_with_what_would_do(given: str) -> None:
    with pytest.raises(ValidationError, match="use a number of seconds, or a time as 90s, 10m or 1h30m"):
        JobSpec.model_validate(SCRIPT | {"fault_tolerance": {"hang_seconds": given}})
