"""Roll-ups equal a brute-force group over the raw points, however the points were cut into batches."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from paceline.monitoring.rollup import LEVELS, Bucket, all_levels, level_for

values = st.floats(allow_nan=True, allow_infinity=True, width=32)
runs = st.lists(values, min_size=1, max_size=300)


def merged(run: list[float], cuts: list[int]) -> dict[int, dict[int, Bucket]]:
    """Roll up the run batch by batch, as uploads come."""
    levels: dict[int, dict[int, Bucket]] = {level: {} for level in LEVELS}
    edges = sorted({0, len(run), *(cut % len(run) for cut in cuts)})
    for first, last in pairwise(edges):
        for level, buckets in all_levels([(step, float(step), run[step]) for step in range(first, last)]).items():
            for number, bucket in buckets.items():
                levels[level].setdefault(number, Bucket()).merge(bucket)
    return levels


@given(run=runs, cuts=st.lists(st.integers(0, 1_000), max_size=10))
def test_every_level_equals_brute_force(run: list[float], cuts: list[int]) -> None:
    for level, buckets in merged(run, cuts).items():
        expected: defaultdict[int, list[float]] = defaultdict(list)
        for step, value in enumerate(run):
            expected[step // level].append(value)
        assert set(buckets) == set(expected)
        for number, points in expected.items():
            numbers = [value for value in points if not math.isnan(value)]
            bucket = buckets[number]
            assert (bucket.count, bucket.nan_count) == (len(points), len(points) - len(numbers))
            assert bucket.minimum == (min(numbers) if numbers else None)
            assert bucket.maximum == (max(numbers) if numbers else None)
            assert bucket.last == (None if math.isnan(points[-1]) else points[-1])
            if numbers and all(map(math.isfinite, numbers)):
                assert math.isclose(bucket.mean, math.fsum(numbers) / len(numbers), abs_tol=1e-9 * max(map(abs, numbers)))
            else:
                assert math.isnan(bucket.mean)


@given(span=st.integers(1, 10**9), limit=st.integers(10, 2_000))
def test_the_chosen_level_is_the_finest_that_fits(span: int, limit: int) -> None:
    level = level_for(span, limit)
    if level != LEVELS[-1]:
        assert span // level + 2 <= limit
    if level != LEVELS[0]:
        assert span // (level // 10) + 2 > limit
