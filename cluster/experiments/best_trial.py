"""The best trial of an experiment, for lists, reports and whoever runs it longer. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from paceline.cluster.experiments.facts import Rung, TrialState
from paceline.cluster.experiments.spec import Metric

#: States of trials whose metric counts: a job that failed or was cancelled has no result.
COUNTED: frozenset[TrialState] = frozenset({"completed", "running", "paused", "pruned"})


class ComparedTrial(NamedTuple):
    """A trial with the experiment's metric at its last step. `rungs`: of a halving, those that it has reached."""

    trial: int  # its index
    state: TrialState
    metric: float | None = None
    rungs: Sequence[Rung] = ()


class BestTrial(NamedTuple):
    """The index of a trial, and the metric by which it is the best. Both are None where no trial has a finite one."""

    trial: int | None = None
    metric: float | None = None


def best_trial(metric: Metric, trials: Sequence[ComparedTrial]) -> BestTrial:
    """Return the trial with the best metric at its last step; of equal ones the first.

    A halving compares trials after the same number of steps: there it is the best of those that have come to the highest rung, by the metric
    at that rung.
    """
    standings = [standing for each in trials if each.state in COUNTED and (standing := _standing(each)) is not None]
    furthest = max((rung for rung, _ in standings), default=0)
    sign = 1 if metric.goal == "minimize" else -1
    return min(
        (best for rung, best in standings if rung == furthest),
        key=lambda each: (sign * (each.metric or 0.0), each.trial),
        default=BestTrial(),
    )


def _standing(trial: ComparedTrial) -> tuple[int, BestTrial] | None:
    """The highest rung at which the trial's metric is finite, counted from 1, and the metric there; of no rung 0 and the newest metric."""
    for number, rung in reversed(list(enumerate(trial.rungs, start=1))):
        if rung.value is not None:
            return number, BestTrial(trial.trial, rung.value)
    if trial.rungs or trial.metric is None or not math.isfinite(trial.metric):
        return None
    return 0, BestTrial(trial.trial, trial.metric)
