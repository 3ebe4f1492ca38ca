"""A curve in one line of text. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
#: In place of a bar where no value of its stretch is finite.
NOT_FINITE = "×"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return at most `width` characters, each the mean of its stretch of `values`, between the lowest and the highest mean. NaN and the
    infinities are left out of means."""
    means = [mean_of(part) for part in stretches(values, width)]
    finite = [mean for mean in means if mean is not None]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    return "".join(NOT_FINITE if mean is None else BARS[_level(mean, low, high)] for mean in means)


def stretches(values: Sequence[float], count: int) -> list[Sequence[float]]:
    """Divide the values into `count` parts in order, as equal as they can be; into single values where there are fewer."""
    count = min(count, len(values))
    return [values[len(values) * part // count : len(values) * (part + 1) // count] for part in range(count)]


def mean_of(values: Sequence[float]) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else None


def _level(mean: float, low: float, high: float) -> int:
    return min(len(BARS) - 1, int((mean - low) / (high - low) * len(BARS))) if high > low else 0
