"""Roll-ups: minimum, maximum, sum and last per bucket of 10, 100, ... steps, which merge, so that any range draws fast.

A bucket of level L holds the steps [n * L, (n + 1) * L). Extremes are kept, never averaged away: no spike hides. NaN has no
order, so it is counted apart; `minimum`, `maximum` and `last` are None where there was nothing but NaN to take them from.

`sum` is of the finite values and saturates at SUM_LIMIT, so it is a finite number whatever comes: +Inf and -Inf together would
make NaN, which SQLite cannot store, and PostgreSQL refuses a sum that overflows. An infinite extreme tells that it is not all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

LEVELS = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
#: Two of them still add up to a finite number.
SUM_LIMIT = 1e300


@dataclass(slots=True)
class Bucket:
    """Accumulator of the points in one range of steps: minimum, maximum, sum, count and last."""

    count: int = 0
    nan_count: int = 0
    minimum: float | None = None
    maximum: float | None = None
    sum: float = 0.0
    last: float | None = None
    last_step: int = -1
    last_time: float = 0.0

    def add(self, step: int, time: float, value: float) -> None:
        self.count += 1
        if step >= self.last_step:
            self.last_step, self.last_time = step, time
            self.last = None if math.isnan(value) else value
        if math.isnan(value):
            self.nan_count += 1
            return
        if math.isfinite(value):
            total = self.sum + value
            self.sum = total if -SUM_LIMIT <= total <= SUM_LIMIT else math.copysign(SUM_LIMIT, total)
        if self.minimum is None or value < self.minimum:
            self.minimum = value
        if self.maximum is None or value > self.maximum:
            self.maximum = value

    @property
    def mean(self) -> float:
        """The mean of the points that are numbers; NaN where there is none, or where one is infinite."""
        numbers = self.count - self.nan_count
        finite = all(extreme is not None and math.isfinite(extreme) for extreme in (self.minimum, self.maximum))
        return self.sum / numbers if numbers and finite else math.nan

    def merge(self, other: Bucket) -> None:
        self.count += other.count
        self.nan_count += other.nan_count
        total = self.sum + other.sum
        self.sum = total if -SUM_LIMIT <= total <= SUM_LIMIT else math.copysign(SUM_LIMIT, total)
        self.minimum = _least(self.minimum, other.minimum)
        self.maximum = _greatest(self.maximum, other.maximum)
        if other.last_step >= self.last_step:
            self.last, self.last_step, self.last_time = other.last, other.last_step, other.last_time


def _least(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else min(one, other)


def _greatest(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else max(one, other)


def group(points: Iterable[tuple[int, float, float]], size: int) -> dict[int, Bucket]:
    """Points (step, time, value) in buckets of `size` steps, by bucket number."""
    buckets: dict[int, Bucket] = {}
    for step, time, value in points:
        number = step // size
        bucket = buckets.get(number)
        if bucket is None:
            bucket = buckets[number] = Bucket()
        bucket.add(step, time, value)
    return buckets


def coarsen(buckets: Mapping[int, Bucket], factor: int) -> dict[int, Bucket]:
    """Merge each `factor` neighbouring buckets into one."""
    coarse: dict[int, Bucket] = {}
    for number, bucket in buckets.items():
        coarse.setdefault(number // factor, Bucket()).merge(bucket)
    return coarse


def all_levels(points: Iterable[tuple[int, float, float]]) -> dict[int, dict[int, Bucket]]:
    """Roll up the points into every level of LEVELS. Points are read once; each level is made from the one below."""
    buckets = group(points, LEVELS[0])
    levels = {LEVELS[0]: buckets}
    for below, level in pairwise(LEVELS):
        buckets = coarsen(buckets, level // below)
        levels[level] = buckets
    return levels


def level_for(span: int, limit: int) -> int:
    """The finest level at which `span` steps make at most `limit` buckets; the coarsest where none does.

    One bucket more than the division says: a range seldom starts where a bucket does.
    """
    return next((level for level in LEVELS if span // level + 2 <= limit), LEVELS[-1])
