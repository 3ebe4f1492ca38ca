"""A curve in one line."""

from __future__ import annotations

import math

import pytest

from paceline.cli.render.sparkline import sparkline, stretches

NAN = math.nan


@pytest.mark.parametrize(
    ("values", "width", "line"),
    [
        ([], 8, ""),
        ([1.0], 8, "▁"),
        ([3.0, 3.0], 8, "▁▁"),
        ([0.0, 1.0], 8, "▁█"),
        ([1.0, 0.0], 8, "█▁"),
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
        ([0, 0, 8, 8], 2, "▁█"),
        ([0.0, NAN, 1.0], 3, "▁×█"),
        ([0.0, NAN, 4.0, math.inf], 2, "▁█"),
        ([NAN, NAN], 2, "××"),
    ],
)
def test_a_curve_is_drawn_between_its_lowest_and_its_highest_mean(values: list[float], width: int, line: str) -> None:
    assert sparkline(values, width) == line


def test_every_value_is_in_one_stretch() -> None:
    parts = stretches(range(100), 24)  # type: ignore[arg-type]
    assert [value for part in parts for value in part] == list(range(100))
    assert {len(part) for part in parts} == {4, 5}
