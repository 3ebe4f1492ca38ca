"""Everything that is known of an experiment's trials, from stored data: a few queries for all of them together.

Of each trial the records of rank 0 are read, at most `MOST_RECORDS` of all trials: beyond that, steps that lie evenly apart. Of steps whose points are no
longer kept there are the means of roll-ups. Totals, peaks and the metric are of all steps, from the coarsest roll-ups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.services.experiments import slot_use, step_columns
from paceline.api.services.experiments.metric_totals import MetricTotals
from paceline.api.services.experiments.slot_use import TrialSlotUse
from paceline.api.services.experiments.step_columns import StepColumns
from paceline.api.services.experiments.strategies import strategy_word
from paceline.api.services.experiments.strides import MOST_RECORDS_OF_ONE, by_stride, steps_read
from paceline.api.services.experiments.trial_states import rungs_of, state_of
from paceline.api.services.history.steps import STEP_SECONDS
from paceline.cluster.experiments.facts import StepSeries, TrialFacts
from paceline.cluster.history.lineage import Line, lineage
from paceline.cluster.history.node_readings import KeepReadings
from paceline.cluster.history.storage import StorageKind, finest_curves_from
from paceline.cluster.states import TERMINAL_JOB_STATES
from paceline.db.repositories import experiments as experiment_rows
from paceline.db.repositories import trial_records, trial_slots
from paceline.db.repositories.experiments import TrialWithJob
from paceline.monitoring.points import SENT_METRICS
from paceline.monitoring.rollup import level_for

#: Records of all trials together: reading and parsing so many takes most of a second.
MOST_RECORDS = 60_000
LEAST_RECORDS_OF_ONE = 20
PEAK_MEMORY = "peak_memory_bytes"


@dataclass(frozen=True)
class StoredTrials:
    """Stored data of the jobs of trials, by the id of the job."""

    totals: Mapping[str, MetricTotals]
    columns: Mapping[str, StepColumns]
    use: TrialSlotUse

    def lines(self, job_id: str) -> list[Line]:
        """The steps that count, by generation."""
        starts = {each.generation: each.start_step for each in self.use.generations.get(job_id, ())}
        totals = self.totals.get(job_id)
        return lineage(starts, totals.newest_steps(STEP_SECONDS)) if totals else []


async def trial_facts(
    control: AsyncSession, points: AsyncSession, experiment_id: str, metric: str, now: datetime, keep: KeepReadings
) -> list[TrialFacts]:
    """The facts of all trials of an experiment, by index. `metric`: by which trials are compared."""
    trials = await experiment_rows.trials(control, experiment_id)
    strategies = await _strategies(control, experiment_id, trials)
    job_ids = [job.id for _, job in trials if job is not None]
    world = max((job.world_size for _, job in trials if job is not None), default=1)
    totals = await _totals(points, job_ids, metric, world)
    stored = StoredTrials(totals, await _columns(points, totals), await slot_use.read_slot_use(control, points, job_ids, now, keep))
    return [_facts(each, strategies[each.trial.index], stored, metric) for each in trials]


# --- reading


async def _strategies(control: AsyncSession, experiment_id: str, trials: Sequence[TrialWithJob]) -> dict[int, str]:
    """The strategy of each trial in a word; of `auto` the one that its job was given."""
    asked = await trial_slots.parallelism_of_trials(control, experiment_id)
    open_choices = [job.id for trial, job in trials if job is not None and (asked.get(trial.index) or {}).get("strategy") == "auto"]
    chosen = await trial_slots.parallelism_of_jobs(control, open_choices)
    return {
        trial.index: strategy_word(chosen.get(job.id) if job and job.id in chosen else asked.get(trial.index), trial.world_size)
        for trial, job in trials
    }


async def _totals(points: AsyncSession, job_ids: Sequence[str], metric: str, world: int) -> dict[str, MetricTotals]:
    known = await trial_records.names(points, job_ids)
    of_all_ranks = known & {PEAK_MEMORY, *SENT_METRICS.values()}
    of_leaders = (known & {STEP_SECONDS, metric}) - of_all_ranks
    found: defaultdict[str, MetricTotals] = defaultdict(MetricTotals)
    for names, ranks in ((of_all_ranks, world), (of_leaders, 1)):
        for job_id, buckets in (await trial_records.totals(points, job_ids, names, ranks)).items():
            found[job_id] = found[job_id].with_buckets(buckets)
    return dict(found)


async def _columns(points: AsyncSession, totals: Mapping[str, MetricTotals]) -> dict[str, StepColumns]:
    """The steps of each job that are looked at one by one."""
    jobs = {job_id: each for job_id, each in totals.items() if each.count(STEP_SECONDS)}
    gone = await trial_records.gone_to_steps(points, list(jobs))
    share = records_of_one(len(jobs))
    chosen = by_stride({job_id: each for job_id, each in jobs.items() if StorageKind.POINTS not in gone.get(job_id, {})}, share)
    found: dict[str, StepColumns] = {}
    for stride, job_ids in chosen.items():
        last = max(jobs[job_id].last_step(STEP_SECONDS) for job_id in job_ids)
        found |= step_columns.parse_records(await trial_records.of_leaders(points, job_ids, steps_read(stride, last)))
    for job_id in jobs.keys() - {job_id for job_ids in chosen.values() for job_id in job_ids}:
        level = max(level_for(jobs[job_id].last_step(STEP_SECONDS), max(share, 3)), finest_curves_from(0, gone.get(job_id, {})))
        buckets = await trial_records.of_level(points, [job_id], step_columns.NAMES, level)
        found[job_id] = step_columns.of_buckets(buckets.get(job_id, []))
    return found


def records_of_one(trials: int) -> int:
    """How many records are read of each of so many trials."""
    return max(LEAST_RECORDS_OF_ONE, min(MOST_RECORDS_OF_ONE, MOST_RECORDS // max(trials, 1)))


# --- facts


def _facts(known: TrialWithJob, strategy: str, stored: StoredTrials, metric: str) -> TrialFacts:
    trial, job = known
    facts: dict[str, Any] = {
        "index": trial.index,
        "values": trial.values,
        "repeat": trial.repeat,
        "baseline": trial.baseline,
        "state": state_of(known),
        "world_size": job.world_size if job else trial.world_size,
        "strategy": strategy,
        "refusal": trial.refusal,
        "rungs": rungs_of(trial),
    }
    if job is not None:
        facts |= {"job_id": job.id, "end_reason": job.end_reason, "job_state": job.state}
        facts |= _steps(job.id, stored) | _use(job.id, stored, has_ended=job.state in TERMINAL_JOB_STATES)
        facts["metric"] = stored.totals.get(job.id, MetricTotals()).final(metric)
    return TrialFacts(**facts)


def _steps(job_id: str, stored: StoredTrials) -> dict[str, Any]:
    columns, lines = stored.columns.get(job_id), stored.lines(job_id)
    if columns is None or not lines:
        return {}
    counted = step_columns.counted(columns, lines)
    first = lines[0].first
    figures = step_columns.figures_of(step_columns.steady(counted, first))
    series = step_columns.series_of(counted, first) if len(counted.steps) else StepSeries()
    return {
        "series": series,
        "step_seconds": figures.step_seconds,
        "samples_per_second": figures.samples_per_second,
        "tokens_per_second": figures.tokens_per_second,
        "parts": figures.parts,
        "exposed_communication": figures.exposed_communication,
        "bubble": figures.bubble,
    }


def _use(job_id: str, stored: StoredTrials, *, has_ended: bool) -> dict[str, Any]:
    totals, use = stored.totals.get(job_id, MetricTotals()), stored.use
    spans = use.generations.get(job_id, ())
    held = use.held_seconds(job_id)
    useful = slot_use.useful_seconds(totals.named(STEP_SECONDS), stored.lines(job_id))
    ended = spans[-1].ended_at if spans and has_ended else None
    return {
        "bytes_per_step": totals.most_sent(SENT_METRICS.values()),
        "peak_memory_bytes": totals.highest(PEAK_MEMORY),
        "goodput": min(1.0, useful / held) if held > 0 and useful > 0 else None,
        "slot_hours": use.slot_hours(job_id) if spans else None,
        "energy_joules": use.energy_joules.get(job_id),
        "machines": use.machines(job_id),
        "started_at": spans[0].started_at.timestamp() if spans else None,
        "ended_at": ended.timestamp() if ended else None,
    }
