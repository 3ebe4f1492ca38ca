"""The Pareto front: configurations to which no other one is preferable in speed, peak memory and the metric at once. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from paceline.cluster.experiments.analysis.configurations import RepeatedTrials
from paceline.cluster.experiments.analysis.statistics import Floats, median

SPEED = "samples_per_second"


def pareto_front(configurations: Sequence[RepeatedTrials], goal: Literal["minimize", "maximize"]) -> set[int]:
    """Return the indices of the configurations on the front, by their medians.

    Another one is preferable if it is nowhere worse and somewhere better. Memory and metric count where all configurations with a speed have them.
    """
    measured = [each for each in configurations if each.figures[SPEED]]
    if not measured:
        return set()
    signs = {SPEED: 1.0, "peak_memory_bytes": -1.0, "metric": 1.0 if goal == "maximize" else -1.0}
    counted = [name for name in signs if all(each.figures[name] for each in measured)]
    merits = np.asarray([[signs[name] * median(each.figures[name]) for name in counted] for each in measured], dtype=np.float64)
    return {each.index for each, own in zip(measured, merits, strict=True) if not _is_dominated(own, merits)}


def _is_dominated(own: Floats, all_merits: Floats) -> bool:
    return bool(((all_merits >= own).all(axis=1) & (all_merits > own).any(axis=1)).any())
