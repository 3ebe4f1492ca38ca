"""What the coarsest roll-ups of a job tell: maxima, means, counts and the last value of a metric over all steps. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from paceline.db.repositories.metric_columns import StoredBucket
from paceline.monitoring.rollup import Bucket


@dataclass(frozen=True)
class MetricTotals:
    """Roll-ups of one job, of any names and ranks."""

    buckets: Sequence[StoredBucket] = ()

    def with_buckets(self, buckets: Sequence[StoredBucket]) -> MetricTotals:
        return MetricTotals([*self.buckets, *buckets])

    def named(self, name: str) -> list[StoredBucket]:
        return [each for each in self.buckets if each.name == name]

    def count(self, name: str) -> int:
        """How many records have a value of this name."""
        return sum(each.bucket.count for each in self.named(name))

    def newest_steps(self, name: str) -> dict[int, int]:
        """The last step of each generation that has a value of this name."""
        found: dict[int, int] = {}
        for each in self.named(name):
            found[each.generation] = max(each.bucket.last_step, found.get(each.generation, -1))
        return found

    def last_step(self, name: str) -> int:
        return max((each.bucket.last_step for each in self.named(name)), default=0)

    def highest(self, name: str) -> float | None:
        return max(_finite(each.bucket.maximum for each in self.named(name)), default=None)

    def final(self, name: str) -> float | None:
        """The value at the last step of the newest generation that has any; None: there is none, or it is not finite."""
        newest = max(self.named(name), key=lambda each: (each.generation, each.bucket.last_step), default=None)
        return next(iter(_finite([newest.bucket.last])), None) if newest is not None else None

    def most_sent(self, names: Collection[str]) -> float | None:
        """The sum of the means of these metrics on the rank where it is largest: bytes of a step of the busiest rank."""
        merged: dict[tuple[int, str], Bucket] = {}
        for each in self.buckets:
            if each.name in names:
                merged.setdefault((each.rank, each.name), Bucket()).merge(each.bucket)
        ranks: dict[int, float] = {}
        for (rank, _), bucket in merged.items():
            told = bucket.count - bucket.nan_count
            ranks[rank] = ranks.get(rank, 0.0) + (bucket.sum / told if told else 0.0)
        return max(ranks.values(), default=None)


def _finite(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]
