"""The experiment's metric of each trial at its last step, its speed, and the best trial so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.services.experiments.metric_totals import MetricTotals
from paceline.api.services.experiments.trial_speed import read_speed
from paceline.api.services.experiments.trial_states import rungs_of, state_of
from paceline.api.services.history.steps import STEP_SECONDS
from paceline.cluster.experiments.best_trial import BestTrial, ComparedTrial, best_trial
from paceline.cluster.experiments.spec import Metric
from paceline.db.models.experiments import ExperimentRow
from paceline.db.repositories import experiments as rows
from paceline.db.repositories import rollups
from paceline.db.repositories.experiments import TrialFigures, TrialJobColumns, TrialWithJob

_LEADER = 0
#: A running trial is read again when it has come so much further; and once when it rests or has ended, and all its points are stored.
SHARE_OF_STEPS = 0.02
#: The points of a trial that rests or has ended are waited for no longer.
LATEST_POINTS = timedelta(minutes=10)


async def refresh(services: Services, row: ExperimentRow, trials: Sequence[TrialWithJob], now: datetime) -> bool:
    """Read the figures of trials that have come further, and store them. Returns whether there were any, or another trial is the best."""
    metric = Metric.model_validate(row.spec["metric"])
    news = await _read(services, [known for known in trials if _is_due(known, now)], metric.name, now)
    best = best_trial(metric, [_compared(known, news) for known in trials])
    if not news and best == (row.best_trial, row.best_metric):
        return False
    async with services.write() as session:
        await _store(session, row.id, metric.name, news, best)
    return True


async def _read(services: Services, trials: Sequence[TrialWithJob], name: str, now: datetime) -> dict[int, TrialFigures]:
    found: dict[int, TrialFigures] = {}
    if not trials:
        return found
    async with services.metrics.read() as points:
        for trial, job in trials:
            assert job is not None
            totals = MetricTotals(await rollups.coarsest(points, job.id, names={name, STEP_SECONDS}, rank=_LEADER))
            speed = await read_speed(points, job.id, totals)
            found[trial.index] = TrialFigures(job.id, totals.final(name), speed, job.step, is_final=_is_told(job, now))
    return found


async def _store(session: AsyncSession, experiment_id: str, name: str, news: Mapping[int, TrialFigures], best: BestTrial) -> None:
    """Store what was read of the metric `name`, unless the experiment has been posted again with another one."""
    row = await rows.get_locked(session, experiment_id)
    if row is not None and row.spec["metric"]["name"] == name:
        await rows.set_figures(session, experiment_id, news)
        row.best_trial, row.best_metric = best


def _is_due(known: TrialWithJob, now: datetime) -> bool:
    trial, job = known
    if job is None:
        return False
    if _is_told(job, now):
        return not (trial.metric_is_final and trial.metric_step == job.resting_step)
    return job.step - trial.metric_step >= max(1.0, SHARE_OF_STEPS * (job.total_steps or 0))


def _is_told(job: TrialJobColumns, now: datetime) -> bool:
    """Whether the job rests or has ended, and everything is stored that its ranks left behind, or has been waited for long enough."""
    return job.resting_step is not None and (not job.is_sending or now - job.state_since >= LATEST_POINTS)


def _compared(known: TrialWithJob, news: Mapping[int, TrialFigures]) -> ComparedTrial:
    trial = known.trial
    metric = news[trial.index].metric if trial.index in news else trial.metric
    return ComparedTrial(trial.index, state_of(known), metric, rungs_of(trial))
