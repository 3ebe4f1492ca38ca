from __future__ import annotations

import math

import pytest

from paceline.api.services.experiments.report.quantities import (
    EFFICIENCY,
    MEMORY,
    STEP_TIME,
    digits,
    percent,
    plain,
    seconds,
    size,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1240, "1,240"),
        (99.96, "100"),
        (0.03124, "0.0312"),
        (12_345_678, "12,300,000"),
        (3.2e-7, "3.20e-07"),
        (-5.5, "-5.50"),
        (math.nan, "–"),
    ],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert digits(value) == text


def test_units_fit_the_size() -> None:
    assert [seconds(value) for value in (0, 2.4e-6, 0.0123, 1.5, 90, 7200)] == [
        "0 µs",
        "2.40 µs",
        "12.3 ms",
        "1.50 s",
        "1.50 min",
        "2.00 h",
    ]
    assert [size(value) for value in (12, 2048, 3 << 20, 5 << 30)] == ["12.0 B", "2.00 KiB", "3.00 MiB", "5.00 GiB"]
    assert percent(0.8125) == "81.2 %"


def test_values_of_specs_are_written_as_their_user_would() -> None:
    assert [plain(value) for value in ("fsdp", 32, 1e-4, True, None, [1, 2])] == ["fsdp", "32", "0.0001", "true", "null", "[1, 2]"]


def test_an_axis_has_the_unit_of_its_largest_value() -> None:
    assert MEMORY.on_axis(3.1e9) == ("GiB", 1 / (1 << 30))
    assert MEMORY.on_axis(3.1e8) == ("MiB", 1 / (1 << 20))
    assert STEP_TIME.on_axis(0.02) == ("ms", 1e3)
    assert EFFICIENCY.on_axis(0.9) == ("percent of ideal", 100)
