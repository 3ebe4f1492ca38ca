"""Experiments and their trials as clients see them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError
from paceline.api.schemas.common import Reason
from paceline.api.schemas.experiments import Experiment, ExperimentSummary, Trial, TrialCounts, TrialJob
from paceline.api.services.experiments.trial_jobs import owner_of
from paceline.api.services.experiments.trial_states import shown_state, shown_state_of_tally, state_of
from paceline.cluster.experiments.draws import most_draws
from paceline.cluster.experiments.findings import Sentence
from paceline.cluster.experiments.rungs import rung_steps
from paceline.cluster.experiments.schedule import ExperimentState
from paceline.cluster.experiments.spec import ExperimentSpec, Search
from paceline.cluster.experiments.time_left import TrialTime, seconds_left, still_to_draw
from paceline.cluster.states import JobState, NodeState
from paceline.db.models.experiments import ExperimentRow
from paceline.db.repositories import experiment_analyses
from paceline.db.repositories import experiments as rows
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories.experiments import HoldingTrial, ResizedSpan, TrialJobColumns, TrialTally, TrialWithJob
from paceline.training.spec.changes import field_at

STATES: tuple[ExperimentState, ...] = ("running", "paused", "completed", "stopped", "cancelled")
#: How many nodes are named in a sentence.
_MOST_NAMES = 3
_LEFT = frozenset({"waiting", "running", "paused"})
_Sentences = TypeAdapter(list[Sentence])


@dataclass
class TrialSums:
    """The trials of one experiment, added up."""

    now: datetime
    tallies: list[TrialTally] = field(default_factory=list)
    holding: list[HoldingTrial] = field(default_factory=list)
    resized: list[ResizedSpan] = field(default_factory=list)

    @property
    def counts(self) -> TrialCounts:
        found = Counter[str]()
        for tally in self.tallies:
            if tally.in_grid:
                found[shown_state_of_tally(tally)] += tally.trials
        states = ("refused", "waiting", "running", "paused", "completed", "failed", "cancelled", "pruned")
        return TrialCounts(total=found.total(), **{state: found[state] for state in states})

    def not_drawn(self, spec: Mapping[str, Any]) -> int:
        """Return how many trials a search may still draw; 0 for a grid. `spec`: the experiment's, as it is stored."""
        if not (search := spec.get("search")):
            return 0
        try:
            most = most_draws(Search.model_validate(search))
        except ValidationError:  # another version has stored it, which is told where it is posted again; lists go on
            return 0
        repeats: int = spec.get("repeats", 1)
        return max(0, most * repeats - self.counts.total)

    @property
    def slot_seconds(self) -> float:
        held = sum(each.ranks * self._held_for(each) for each in self.holding)
        extra = sum(each.extra_slot_seconds for each in self.resized)
        return sum(each.world_size * each.ran_seconds for each in self.tallies) + extra + held

    def seconds_left(self, spec: Mapping[str, Any]) -> float | None:
        """Return the seconds until the last trial ends, those included that a search has not drawn yet. `spec`: the experiment's, as it is stored."""
        times = [
            TrialTime(each.world_size, each.trials, each.ran_seconds, state == "completed")
            for each in self.tallies
            if each.in_grid and not each.holds_slots and (state := shown_state_of_tally(each)) in _LEFT | {"completed"}
        ]
        running = [each for each in self.holding if each.is_left]
        times += [TrialTime(each.world_size, 1, each.ran_seconds + self._held_for(each), has_ended=False) for each in running]
        times += still_to_draw(times, self.not_drawn(spec))
        places = len(self.holding)
        return seconds_left(times, min(spec.get("at_once") or places, max(1, places)))

    def _held_for(self, trial: HoldingTrial) -> float:
        return max(0.0, (self.now - trial.since).total_seconds())


async def sums_of(session: AsyncSession, experiments: Sequence[ExperimentRow], now: datetime) -> Mapping[str, TrialSums]:
    found = {row.id: TrialSums(now) for row in experiments}
    for tally in await rows.tallies(session, list(found)):
        found[tally.experiment_id].tallies.append(tally)
    for trial in await rows.holding_trials(session, list(found)):
        found[trial.experiment_id].holding.append(trial)
    for span in await rows.resized_spans(session, list(found)):
        found[span.experiment_id].resized.append(span)
    return found


def summarize(row: ExperimentRow, sums: TrialSums) -> ExperimentSummary:
    return ExperimentSummary.model_validate(_summary(row, sums))


def _summary(row: ExperimentRow, sums: TrialSums) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "project": row.project,
        "description": row.spec.get("description", ""),
        "labels": row.labels,
        "state": row.state,
        "created_by": owner_of(row),
        "created_at": row.created_at,
        "ended_at": row.ended_at,
        "axes": row.axes,
        "trials": _progress(row, sums),
        "seconds_left": sums.seconds_left(row.spec) if row.state == "running" else None,
        "slot_hours": (row.former_slot_seconds + sums.slot_seconds) / 3600,
        "best_trial": row.best_trial,
        "best_metric": row.best_metric,
        "revision": row.version,
    }


def _progress(row: ExperimentRow, sums: TrialSums) -> TrialCounts:
    """The trials by their states. Those that a search has still to draw count as waiting: it would look nearly complete otherwise."""
    counts = sums.counts
    if row.state in ("completed", "cancelled"):
        return counts
    coming = sums.not_drawn(row.spec)
    return counts.model_copy(update={"total": counts.total + coming, "waiting": counts.waiting + coming})


async def describe(session: AsyncSession, row: ExperimentRow, now: datetime) -> Experiment:
    sums = (await sums_of(session, [row], now))[row.id]
    summary = await experiment_analyses.summary(session, row.id)
    return Experiment(
        **_summary(row, sums),
        spec=row.spec,
        waits_for=await _waits_for(session, row),
        headline=_headline(summary.sentences) if summary else None,
        analyzed_at=summary.made_at if summary else None,
    )


def _headline(sentences: Sequence[Any]) -> Sentence | None:
    return next((each for each in _Sentences.validate_python(sentences) if each.kind == "recommendation"), None)


async def _waits_for(session: AsyncSession, row: ExperimentRow) -> Reason | None:
    if row.state == "stopped":
        return Reason(code="budget", text=row.state_why, next_step="post it again with a larger budget")
    if row.state != "running":
        return None
    trials = await rows.unended_trials(session, row.id)
    jobs = [each.job for each in trials if each.job is not None]
    if any(state_of(each) == "running" and each.job and each.job.state is not JobState.QUEUED for each in trials):
        return None
    queued = next((job for job in jobs if job.state is JobState.QUEUED and job.pending), None)
    if queued is not None:
        return Reason.model_validate(queued.pending)
    by_hand = next((each for each in trials if _is_paused_by_hand(each, row.spec)), None)
    if by_hand is not None and by_hand.job is not None:
        text = f"trial {by_hand.trial.index} was paused by hand"
        return Reason(code="paused_by_hand", text=text, next_step=f"resume job {by_hand.job.name}, or cancel it")
    return await _waits_for_nodes(session) if not jobs and _leaves_plans_open(row.spec) else None


def _is_paused_by_hand(known: TrialWithJob, spec: Mapping[str, Any]) -> bool:
    """Whether somebody else than the experiment paused the trial's job. At the rungs of a halving it pauses by itself."""
    if state_of(known) != "paused" or known.trial.paused_for is not None or known.job is None:
        return False
    return not spec.get("halving") or known.job.step not in rung_steps(ExperimentSpec.model_validate(spec))


async def _waits_for_nodes(session: AsyncSession) -> Reason | None:
    """Return which nodes trials wait for whose plans are chosen for the nodes that are here; None where none is to come."""
    present = await node_rows.present(session)
    joining = [node.name for node in present if node.state is NodeState.JOINING]
    text = "`strategy: auto` chooses plans for the nodes that are here"
    if len(joining) == len(present):
        next_step = "add a node (paceline worker), or give the strategy, such as ddp or fsdp"
        return Reason(code="no_nodes", text=f"{text}, and there is none", next_step=next_step)
    if not joining:
        return None
    names = f"{', '.join(joining[:_MOST_NAMES])}{' and others' if len(joining) > _MOST_NAMES else ''}"
    text = f"{text}; none holds a trial yet, and {names} {'is' if len(joining) == 1 else 'are'} joining"
    return Reason(
        code="nodes_joining", text=text, next_step="start the agent there (paceline worker), or remove the node if it is not to come"
    )


def _leaves_plans_open(spec: Mapping[str, Any]) -> bool:
    axes = (spec.get("grid") or {}, *(spec.get("zip") or ()), (spec.get("search") or {}).get("parameters", {}))
    varied = [strategy for values in axes for strategy in values.get("parallelism.strategy", ())]
    return "auto" in (field_at(spec, ("job", "parallelism", "strategy")), *varied)


def describe_trial(known: TrialWithJob) -> Trial:
    trial, job = known
    return Trial(
        index=trial.index,
        values=trial.values,
        repeat=trial.repeat,
        baseline=trial.baseline,
        state=shown_state(known),
        refusal=trial.refusal,
        job=_job(job, trial.samples_per_second) if job else None,
        metric=trial.metric,
        metric_step=trial.metric_step,
        reused=trial.reused,
    )


def _job(job: TrialJobColumns, samples_per_second: float | None) -> TrialJob:
    progress = job.progress or {}
    return TrialJob(
        id=job.id,
        name=job.name,
        state=job.state,
        end_reason=job.end_reason,
        step=job.step,
        total_steps=job.total_steps,
        loss=_finite(progress.get("loss")),
        samples_per_second=samples_per_second,
    )


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def parse_states(status: str | None) -> tuple[str, ...]:
    names = [name.strip() for name in (status or "").split(",") if name.strip()]
    unknown = [name for name in names if name not in STATES]
    if unknown:
        raise ProblemError("invalid_parameter", f"status={unknown[0]} is no state of an experiment; use {', '.join(STATES)}")
    return tuple(names)
