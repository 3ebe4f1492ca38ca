"""The Pareto front: configurations to which no other one is preferable in speed, peak memory and the metric at once. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from paceline.cluster.experiments.analysis.configurations import RepeatedTrials
from paceline.cluster.experiments.analysis.statistics import ROUNDING, estimate
from paceline.cluster.experiments.findings import Estimate

SPEED, MEMORY, METRIC = "samples_per_second", "peak_memory_bytes", "metric"
#: Differences that do not count, as shares: repeats on one machine differ by as much in speed and memory.
NOISE = {SPEED: 0.02, MEMORY: 0.02, METRIC: ROUNDING}


def pareto_front(configurations: Sequence[RepeatedTrials], goal: Literal["minimize", "maximize"]) -> set[int]:
    """Return the indices of the configurations on the front.

    Another one is preferable if it is nowhere worse and somewhere better. Medians count as equal where they differ by less than NOISE, or where
    one lies in the 95 % interval of the other one. Memory and metric count where all configurations with a speed have them. Those that a
    halving pruned have lost in the metric already, and are left out.
    """
    measured = [each for each in configurations if each.figures[SPEED] and not all(trial.state == "pruned" for trial in each.trials)]
    signs = {SPEED: 1, MEMORY: -1, METRIC: 1 if goal == "maximize" else -1}
    counted = [name for name in signs if all(each.figures[name] for each in measured)]
    ranks = np.array([_ranks([each.figures[name] for each in measured], signs[name], NOISE[name]) for name in counted]).T
    return {each.index for each, own in zip(measured, ranks, strict=True) if not _is_dominated(own, ranks)}


def _ranks(samples: Sequence[Sequence[float]], sign: int, noise: float) -> list[int]:
    """The place of each sample among all, 0 the best. From the best on, all that are equal to it have its place; then the next one begins a place."""
    found = [each for values in samples if (each := estimate(values)) is not None]
    ranks, first, rank = [0] * len(found), None, -1
    for at in sorted(range(len(found)), key=lambda at: -sign * found[at].value):
        if first is None or not _are_equal(first, found[at], noise):
            first, rank = found[at], rank + 1
        ranks[at] = rank
    return ranks


def _are_equal(one: Estimate, other: Estimate, noise: float) -> bool:
    if abs(one.value - other.value) <= noise * max(abs(one.value), abs(other.value)):
        return True
    return _covers(one, other.value) or _covers(other, one.value)


def _covers(interval: Estimate, value: float) -> bool:
    return interval.low is not None and interval.high is not None and interval.low <= value <= interval.high


def _is_dominated(own: NDArray[np.int64], ranks: NDArray[np.int64]) -> bool:
    return bool(((ranks <= own).all(axis=1) & (ranks < own).any(axis=1)).any())
