"""Medians with bootstrap intervals, exact permutation tests, and the correction for many of them. Pure; random draws are the same each time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from paceline.cluster.experiments.findings import Estimate

Floats = NDArray[np.float64]
#: A pair of samples that are compared with each other only.
Stratum = tuple[Sequence[float], Sequence[float]]

ALPHA = 0.05
#: Losses that differ by a smaller share are equal but for rounding: under two plans they never are to the last bit, differ in each repeat alike, and
#: more so from step to step.
ROUNDING = 1e-4
RESAMPLES = 2_000
#: Up to this many ways to deal out the labels all are tried, beyond it as many random ones.
EXACT_SPLITS = 10_000
#: Numbers beyond are no measurements, and their squares and ratios would not be finite.
LARGEST, SMALLEST = 1e50, 1e-50
_SEED = 20_261_125


def usable(value: float | None) -> float | None:
    """Return the value where it is a number that can be reckoned with; else None: missing, not finite, or of an absurd size."""
    if value is None or not math.isfinite(value):
        return None
    return value if value == 0 or SMALLEST < abs(value) < LARGEST else None


def median(values: Sequence[float]) -> float:
    """Return the median of at least one value; of an even number the mean of the middle two."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def estimate(values: Sequence[float]) -> Estimate | None:
    """Return the median with the 95 % interval of its percentile bootstrap (Efron 1979); None without values."""
    if not values:
        return None
    if len(values) == 1:
        return Estimate(value=values[0], count=1)
    low, high = _interval(_resampled_medians(values, 0))
    return Estimate(value=median(values), low=low, high=high, count=len(values))


def ratio_estimate(numerators: Sequence[float], denominators: Sequence[float], scale: float = 1.0) -> Estimate | None:
    """Return the ratio of the medians of two independent samples of positive values, times `scale`.

    The interval is of a bootstrap of both; None where either sample has one value. `count` is that of the smaller sample.
    """
    if not numerators or not denominators or min(*numerators, *denominators) <= 0:
        return None
    value, count = median(numerators) / median(denominators) * scale, min(len(numerators), len(denominators))
    if count == 1:
        return Estimate(value=value, count=1)
    low, high = _interval(_resampled_medians(numerators, 0) / _resampled_medians(denominators, 1) * scale)
    return Estimate(value=value, low=low, high=high, count=count)


def coverage(count: int) -> float:
    """Return how often the range of `count` values has the median of their distribution in it: the interval of a few values is no wider."""
    return 1 - 2.0 ** (1 - count)


def permutation_p(strata: Sequence[Stratum]) -> float:
    """Return the two-sided p-value of a permutation test of the sum over the strata of (mean of the second - mean of the first sample).

    Labels are exchanged within a stratum only. All ways to do so are tried, or EXACT_SPLITS random ones where there are more (Phipson and
    Smyth 2010: the observed one counts too).
    """
    shifts = [_shifts(first, second) for first, second in strata]
    ways = math.prod(len(each) for each in shifts)
    observed = abs(math.fsum(float(each[0]) for each in shifts))
    if ways <= EXACT_SPLITS:
        totals = shifts[0]
        for each in shifts[1:]:
            totals = np.add.outer(totals, each).ravel()
        return float(_as_far(totals, observed).mean())
    generator = np.random.default_rng(_SEED)
    drawn = np.sum([each[generator.integers(len(each), size=EXACT_SPLITS)] for each in shifts], axis=0)
    return float((1 + _as_far(drawn, observed).sum()) / (1 + EXACT_SPLITS))


def least_p(strata: Sequence[Stratum]) -> float:
    """Return the smallest p-value that a permutation test of samples of these sizes can have."""
    ways = math.prod(math.comb(len(first) + len(second), len(first)) for first, second in strata)
    mirrored = all(len(first) == len(second) for first, second in strata)
    return max((2 if mirrored else 1) / ways, 1 / (1 + EXACT_SPLITS))


def can_be_shown(least: Sequence[float]) -> list[int]:
    """Return the indices of the comparisons that can be shown to be differences beside the others, by the least p-value of each.

    `holm` multiplies p-values by the number of comparisons, so that many comparisons need more repeats each. Those with the fewest repeats are left out,
    all that have as few together, until the others can come below ALPHA.
    """
    ordered = sorted(range(len(least)), key=least.__getitem__)
    while ordered and any(least[index] * (len(ordered) - place) >= ALPHA for place, index in enumerate(ordered)):
        ordered = [index for index in ordered if least[index] < least[ordered[-1]]]
    return sorted(ordered)


def enough_repeats(comparisons: int) -> int:
    """Return the repeats with which one of so many comparisons of two configurations can be shown to be a difference."""
    return next(repeats for repeats in itertools.count(2) if 2 / math.comb(2 * repeats, repeats) * max(1, comparisons) < ALPHA)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number by the step-down method of Holm (1979), in the given order."""
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    corrected, largest = [1.0] * len(p_values), 0.0
    for rank, at in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[at]))
        corrected[at] = largest
    return corrected


def _interval(medians: Floats) -> tuple[float, float]:
    ordered = np.sort(medians)
    cut = round(len(ordered) * ALPHA / 2)
    return float(ordered[cut]), float(ordered[-1 - cut])


def _resampled_medians(values: Sequence[float], stream: int) -> Floats:
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    lower, upper = _middles(len(values), stream)
    return (ordered[lower] + ordered[upper]) / 2


@cache
def _middles(count: int, stream: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The ranks of the middle two (or of the middle one, twice) in each resample of `count` ordered values: the same for any values."""
    drawn = np.sort(np.random.default_rng((_SEED, stream, count)).integers(count, size=(RESAMPLES, count)), axis=1)
    return drawn[:, (count - 1) // 2], drawn[:, count // 2]


def _shifts(first: Sequence[float], second: Sequence[float]) -> Floats:
    """The difference of means under each way to deal out the labels, the observed one first."""
    pooled = np.asarray([*first, *second], dtype=np.float64)
    shifts: Floats = _splits(len(first), len(second)) @ pooled
    return shifts


@cache
def _splits(first: int, second: int) -> Floats:
    """One row per way to deal out the labels: what each value counts in the difference of means."""
    total = first + second
    if math.comb(total, first) <= EXACT_SPLITS:
        chosen = np.asarray(list(itertools.combinations(range(total), first)))
    else:
        generator = np.random.default_rng((_SEED, first, second))
        chosen = np.argsort(generator.random((EXACT_SPLITS, total)), axis=1)[:, :first]
        chosen[0] = np.arange(first)
    weights = np.full((len(chosen), total), 1 / second)
    np.put_along_axis(weights, chosen, -1 / first, axis=1)
    return weights


def _as_far(totals: Floats, observed: float) -> NDArray[np.bool_]:
    """Whether each is as far from zero as what was observed, but for rounding."""
    distances = np.abs(totals)
    far: NDArray[np.bool_] = distances >= observed - 1e-9 * distances.max()
    return far
