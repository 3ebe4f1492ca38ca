"""Whether what was measured stays flat after a warm-up. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scripts.soak.readings import HISTORY, Reading

#: What the end may have more than the beginning, of the beginning, and the least that counts at all, by the end of a figure's name.
GROWTH = 0.15
LEAST = {"memory_mb": 16.0, "descriptors": 8.0, "threads": 4.0, ".mb": 8.0, "kb_per_job": 2.0, "_ms": 25.0}
#: Grows with each job that is played, as it should; it is judged by what it has for each of them.
GROWS_WITH_JOBS = f"{HISTORY}.mb"
#: Fewer readings after the warm-up say nothing.
ENOUGH = 6


@dataclass(frozen=True)
class Trend:
    """A figure in the first and in the last third after the warm-up: medians."""

    name: str
    first: float
    last: float

    @property
    def is_flat(self) -> bool:
        if self.name == GROWS_WITH_JOBS:
            return True
        least = next(least for end, least in LEAST.items() if self.name.endswith(end))
        return self.last <= self.first * (1 + GROWTH) + least


def trends(readings: Sequence[Reading], warm_up: float) -> list[Trend]:
    """Return the trend of every figure that was read often enough after `warm_up` seconds. Raises ValueError where there is none."""
    series: dict[str, list[float]] = {}
    for reading in readings:
        if reading.at >= warm_up:
            for name, value in reading.values.items():
                series.setdefault(name, []).append(value)
    found = [_trend(name, values) for name, values in sorted(series.items()) if len(values) >= ENOUGH]
    if not found:
        raise ValueError(f"no figure was read {ENOUGH} times after the warm-up of {warm_up:g} s; let it run longer")
    return found


def _trend(name: str, values: Sequence[float]) -> Trend:
    third = max(1, len(values) // 3)
    return Trend(name, statistics.median(values[:third]), statistics.median(values[-third:]))
