"""The requests about an experiment: post it, post it again, pause, resume and cancel it as one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError
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
from paceline.cluster.experiments.merging import Merge, merge
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


def required_spec_of(row: ExperimentRow) -> ExperimentSpec:
    """The spec for an answer that needs it. Raises a problem that says why it cannot be read."""
    try:
        return spec_of(row)
    except ValidationError as error:
        first = error.errors()[0]
        place = "/".join(str(part) for part in first["loc"])
        raise ProblemError(
            "unreadable_experiment",
            f"the stored spec of experiment {row.name} cannot be read by this version: {place}: {first['msg']}; post it under another name, or go back "
            "to the version that stored it",
        ) from None


# --- post


async def post(
    session: AsyncSession, spec: ExperimentSpec, grid: TrialGrid, caller: Caller, services: Services, *, is_new: bool = False
) -> ExperimentRow:
    """Store an experiment, or give the one of this project and name a new grid, of which only what is missing runs. `version` 1: it is new.
    `is_new`: raise ProblemError already_exists where there is one."""
    now = services.now()
    fresh = _columns(spec, grid, caller.actor, now)
    row = await rows.claim_name(session, fresh)
    if row.id == fresh["id"]:
        trial_rows.add(session, row, {cell.index: cell for cell in grid.cells}, spec)
        await record_event(session, row, "experiment.created", caller.actor, "submitted", f"{len(grid.cells)} trials", now)
    else:
        if is_new:
            raise _taken(row)
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


def _taken(row: ExperimentRow) -> ProblemError:
    return ProblemError(
        "already_exists",
        f"there is an experiment {row.name!r} of {row.created_by} in project {row.project!r} already; choose another name, or post it "
        "again to give that one this grid",
    )


async def _post_again(
    session: AsyncSession, row: ExperimentRow, spec: ExperimentSpec, grid: TrialGrid, actor: Actor, now: datetime
) -> None:
    before = required_spec_of(row).metric
    known = await known_trials(session, row)
    change = await change_of(row, spec, grid, known)
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


async def known_trials(session: AsyncSession, row: ExperimentRow) -> dict[int, TrialWithJob]:
    """Return all trials of an experiment by index, those of its former grids included."""
    return {each.trial.index: each for each in await rows.trials(session, row.id, also_former=True)}


async def change_of(row: ExperimentRow, spec: ExperimentSpec, grid: TrialGrid, known: Mapping[int, TrialWithJob]) -> Merge:
    """Return what becomes of an experiment's trials, which are `known`, when it is posted again as `spec`."""
    cells = grid.cells if spec.search is None else await _drawn(row, spec, list(known.values()))
    former = [former_trial(each) for each in known.values()]
    return merge(former, cells, max(known, default=-1) + 1, keeps_pruned=spec.halving is not None)


def jobs_to_cancel(trials: Iterable[TrialWithJob]) -> list[str]:
    """Return the ids of the trials' jobs that have not ended and that nobody has asked to cancel."""
    jobs = [each.job for each in trials if each.job is not None]
    return [job.id for job in jobs if job.state not in TERMINAL_JOB_STATES and job.desired is not Intent.CANCEL]


async def _drawn(row: ExperimentRow, spec: ExperimentSpec, known: Sequence[TrialWithJob]) -> Sequence[Cell]:
    """Return the cells of what the search has drawn and may draw again. Of a former grid there are none: its trials come back as they are drawn."""
    if required_spec_of(row).search is None:
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
    mine = jobs_to_cancel(trials)
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
