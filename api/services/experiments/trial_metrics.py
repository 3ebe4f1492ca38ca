"""The experiment's metric of each trial, newest and best, and the best trial so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.services.experiments.trial_states import halving_trial
from paceline.cluster.experiments import halving
from paceline.cluster.experiments.spec import Metric
from paceline.db.models.experiments import ExperimentRow
from paceline.db.repositories import experiments as rows
from paceline.db.repositories import rollups
from paceline.db.repositories.experiments import TrialMetric, TrialWithJob
from paceline.db.repositories.metric_columns import StoredBucket

_LEADER = 0
#: A running trial is read again when it has come so much further; and once when it rests or has ended, and all its points are stored.
SHARE_OF_STEPS = 0.02


class BestTrial(NamedTuple):
    trial: int | None = None
    value: float | None = None


async def refresh(services: Services, row: ExperimentRow, trials: Sequence[TrialWithJob]) -> bool:
    """Read the metric of trials that have come further, and store it. Returns whether there were any, or another trial is the best."""
    metric, is_halved = Metric.model_validate(row.spec["metric"]), row.spec.get("halving") is not None
    news = await _read(services, [known for known in trials if _is_due(known)], metric)
    best = _best_at_rung(trials, metric) if is_halved else _best(trials, news, metric)
    if not news and best == (row.best_trial, row.best_metric):
        return False
    async with services.write() as session:
        await _store(session, row.id, news, best)
    return True


async def _read(services: Services, trials: Sequence[TrialWithJob], metric: Metric) -> dict[int, TrialMetric]:
    found: dict[int, TrialMetric] = {}
    if not trials:
        return found
    async with services.metrics.read() as points:
        for trial, job in trials:
            assert job is not None
            buckets = await rollups.coarsest(points, job.id, names=(metric.name,), rank=_LEADER)
            at_rest = job.resting_step is not None
            found[trial.index] = TrialMetric(_newest(buckets), _best_of(buckets, metric), job.step, at_rest)
    return found


async def _store(session: AsyncSession, experiment_id: str, news: Mapping[int, TrialMetric], best: BestTrial) -> None:
    row = await rows.get_locked(session, experiment_id)
    if row is not None:
        await rows.set_metrics(session, experiment_id, news)
        row.best_trial, row.best_metric = best


def _is_due(known: TrialWithJob) -> bool:
    trial, job = known
    if job is None:
        return False
    if job.resting_step is not None:
        return not (trial.metric_is_final and trial.metric_step == job.resting_step)
    return job.step - trial.metric_step >= max(1.0, SHARE_OF_STEPS * (job.total_steps or 0))


def _newest(buckets: Sequence[StoredBucket]) -> float | None:
    newest = max(buckets, key=lambda each: (each.generation, each.bucket.last_step), default=None)
    return _finite(newest.bucket.last) if newest is not None else None


def _best_of(buckets: Sequence[StoredBucket], metric: Metric) -> float | None:
    best: float | None = None
    for each in buckets:
        best = better(metric, best, _finite(each.bucket.minimum if metric.goal == "minimize" else each.bucket.maximum))
    return best


def _best(trials: Sequence[TrialWithJob], news: Mapping[int, TrialMetric], metric: Metric) -> BestTrial:
    best = BestTrial()
    for trial, _ in trials:
        mine = news[trial.index].best if trial.index in news else trial.best_metric
        if better(metric, best.value, mine) != best.value:
            best = BestTrial(trial.index, mine)
    return best


def _best_at_rung(trials: Sequence[TrialWithJob], metric: Metric) -> BestTrial:
    """The best of a halving: of those that came furthest, by the metric there, since all are compared at the same step."""
    known = {each.trial.index: halving_trial(each) for each in trials}
    index = halving.best(metric, list(known.values()))
    return BestTrial() if index is None else BestTrial(index, known[index].rungs[-1].value)


def better(metric: Metric, one: float | None, other: float | None) -> float | None:
    """The better of two values; the first one where they are equally good, the other one where one is None."""
    if one is None or other is None:
        return one if other is None else other
    return (min if metric.goal == "minimize" else max)(one, other)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
