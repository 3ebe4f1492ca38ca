"""The requests about an experiment: post it, post it again, pause, resume and cancel it as one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import Services, nudge_after_commit
from paceline.api.core.identity import Caller
from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.common import Actor, FieldError
from paceline.api.services.experiments import trial_rows
from paceline.api.services.experiments.trial_states import former_trial
from paceline.api.services.jobs import ownership, revisions
from paceline.api.services.lifecycle import events, job_lifecycle
from paceline.api.services.lifecycle.experiment_lifecycle import OVER, move
from paceline.cluster.experiments.draws import cells_of_former_draws
from paceline.cluster.experiments.facts import Cell
from paceline.cluster.experiments.grid import TrialGrid
from paceline.cluster.experiments.merging import merge
from paceline.cluster.experiments.schedule import ExperimentState
from paceline.cluster.experiments.spec import ExperimentSpec, Metric
from paceline.cluster.states import TERMINAL_JOB_STATES, Intent
from paceline.db.base import new_id
from paceline.db.models.experiments import ExperimentRow, TrialRow
from paceline.db.repositories import experiments as rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories.experiments import TrialWithJob


async def find(session: AsyncSession, experiment_id: str, *, lock: bool = False) -> ExperimentRow:
    row = await (rows.get_locked if lock else rows.get)(session, experiment_id)
    if row is None:
        raise not_found("experiment", experiment_id)
    return row


def spec_of(row: ExperimentRow) -> ExperimentSpec:
    return ExperimentSpec.model_validate(row.spec)


# --- post


async def post(session: AsyncSession, spec: ExperimentSpec, grid: TrialGrid, caller: Caller, services: Services) -> ExperimentRow:
    """Store an experiment, or give the one of this project and name a new grid, of which only what is missing runs. `version` 1: it is new."""
    now = services.now()
    fresh = _columns(spec, grid, caller.actor, now)
    row = await rows.claim_name(session, fresh)
    if row.id == fresh["id"]:
        trial_rows.add(session, row, {cell.index: cell for cell in grid.cells}, spec)
        await record_event(session, row, "experiment.created", caller.actor, "submitted", f"{len(grid.cells)} trials", now)
    else:
        ownership.require_owner_or_admin_of(caller, "experiment", row, services.settings, "post it again")
        await _post_again(session, row, spec, grid, caller.actor, now)
    nudge_after_commit(session, bus.EXPERIMENTS)
    await session.flush()
    return row


def _columns(spec: ExperimentSpec, grid: TrialGrid, actor: Actor, now: datetime) -> dict[str, Any]:
    return {
        "id": new_id(),
        "name": spec.name,
        "project": spec.project,
        "labels": dict(spec.labels),
        "state": "running",
        "spec": spec.model_dump(mode="json"),
        "axes": list(grid.axes),
        "created_by": actor.name,
        "created_by_id": actor.id if actor.kind == "user" else None,
        "created_at": now,
        "state_since": now,
        "version": 1,
    }


async def _post_again(
    session: AsyncSession, row: ExperimentRow, spec: ExperimentSpec, grid: TrialGrid, actor: Actor, now: datetime
) -> None:
    known = {each.trial.index: each for each in await rows.trials(session, row.id, also_former=True)}
    cells = grid.cells if spec.search is None else await _drawn(row, spec, list(known.values()))
    former = [former_trial(each) for each in known.values()]
    change = merge(former, cells, max(known, default=-1) + 1, keeps_pruned=spec.halving is not None)
    before = spec_of(row).metric
    if before != spec.metric and spec.halving is not None and any(each.trial.rungs for each in known.values()):
        raise _compared_already(row.name, before, spec.metric)
    if before.name != spec.metric.name:
        _forget_metric(row, await rows.trial_rows(session, row.id, known))
    await trial_rows.apply(session, row, change, known, spec, now)
    await rows.retire(session, row.id, change.retired)
    await cancel_jobs(session, [known[index] for index in change.retired], actor, now)
    row.spec, row.axes, row.labels = spec.model_dump(mode="json"), list(grid.axes), dict(spec.labels)
    move(row, "running", "", now)
    message = f"{len(change.kept)} trials stay, {len(change.anew)} run anew, {len(change.added)} are added, {len(change.retired)} go"
    await record_event(session, row, "experiment.posted_again", actor, f"{actor.name} asked for it", message, now)


async def _drawn(row: ExperimentRow, spec: ExperimentSpec, known: Sequence[TrialWithJob]) -> Sequence[Cell]:
    """Return the cells of what the search has drawn and may draw again. Of a former grid there are none: its trials come back as they are drawn."""
    if spec_of(row).search is None:
        return []
    present = [each.trial for each in known if each.trial.in_grid]
    draws = {each.configuration: each.values for each in present}
    return await asyncio.to_thread(cells_of_former_draws, spec, draws, {each.key for each in present})


def _compared_already(name: str, before: Metric, asked: Metric) -> ProblemError:
    """Return why a halving goes on by no other metric or goal: its rungs have values of the former metric, and it has pruned by the former goal."""
    part = "name" if before.name != asked.name else "goal"
    why = f"the halving of experiment {name} has compared its trials by {_measure(before)}, and cannot go on by {_measure(asked)}"
    way_out = f"post it under another name, or leave metric.{part}={getattr(before, part)}"
    error = FieldError(pointer=f"/metric/{part}", code="compared_already", message=why, hint=way_out)
    return ProblemError("invalid_experiment", f"/metric/{part}: {why}; {way_out}", errors=[error])


def _measure(metric: Metric) -> str:
    return f"{metric.name} ({metric.goal})"


def _forget_metric(row: ExperimentRow, trials: Mapping[int, TrialRow]) -> None:
    """Have the metric of all trials read anew, those that the grid has left out included: they may come back."""
    for trial in trials.values():
        trial.metric, trial.metric_is_final, trial.metric_step, trial.rungs = None, False, 0, []
    row.best_trial = row.best_metric = None


# --- pause, resume, cancel


async def pause(session: AsyncSession, row: ExperimentRow, if_match: str | None, actor: Actor, now: datetime) -> None:
    """Have every trial that runs saved and its slots freed, and start none."""
    _refuse_over(row, "paused")
    revisions.check_version("experiment", row.version, if_match)
    if row.state == "paused":
        raise ProblemError("experiment_already_paused", f"experiment {row.name} is paused already; resume it with PUT .../resume")
    await _ask(session, row, "paused", actor, now)


async def resume(session: AsyncSession, row: ExperimentRow, if_match: str | None, actor: Actor, now: datetime) -> None:
    _refuse_over(row, "resumed")
    revisions.check_version("experiment", row.version, if_match)
    if row.state == "stopped":
        raise ProblemError(
            "experiment_not_paused", f"experiment {row.name} has stopped: {row.state_why}; post it again with a larger budget"
        )
    if row.state != "paused":
        raise ProblemError("experiment_not_paused", f"experiment {row.name} is {row.state}, not paused; there is nothing to resume")
    await _ask(session, row, "running", actor, now)


async def cancel(session: AsyncSession, row: ExperimentRow, if_match: str | None, actor: Actor, now: datetime) -> None:
    """Cancel every trial that has not ended. Asking again is harmless."""
    if row.state == "completed":
        _refuse_over(row, "cancelled")
    revisions.check_version("experiment", row.version, if_match)
    if row.state != "cancelled":
        await _ask(session, row, "cancelled", actor, now)


async def _ask(session: AsyncSession, row: ExperimentRow, state: ExperimentState, actor: Actor, now: datetime) -> None:
    before = row.state
    move(row, state, f"{actor.name} asked for it", now)
    await record_event(session, row, "experiment.state", actor, f"{actor.name} asked for it", f"{before} -> {state}", now)
    nudge_after_commit(session, bus.EXPERIMENTS)
    await session.flush()


async def cancel_jobs(session: AsyncSession, trials: list[TrialWithJob], actor: Actor, now: datetime) -> None:
    """Ask for the end of the jobs that have not ended."""
    mine = [each.job.id for each in trials if each.job is not None and each.job.state not in TERMINAL_JOB_STATES]
    for job in await job_rows.all_locked(session, mine) if mine else []:
        if job.state not in TERMINAL_JOB_STATES and job.desired is not Intent.CANCEL:
            await job_lifecycle.want(session, job, Intent.CANCEL, actor, now)


async def record_event(
    session: AsyncSession, row: ExperimentRow, type: str, actor: Actor, cause: str, message: str, now: datetime, **data: Any
) -> None:
    told = f"experiment {row.name}: {message}"
    facts = {"experiment_id": row.id, "state": row.state, **data}
    await events.record(session, type=type, actor=actor, cause=cause, message=told, data=facts, time=now)


def _refuse_over(row: ExperimentRow, participle: str) -> None:
    if row.state in OVER:
        raise ProblemError(
            "experiment_finished",
            f"experiment {row.name} is {row.state}; it cannot be {participle} any more; post it again to run what is missing",
        )
