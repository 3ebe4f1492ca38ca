"""Writes the rows of trials: of new ones, and of those that stay or run anew when their experiment is posted again or draws them again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.services.experiments.trial_states import state_of
from paceline.cluster.experiments.cells import named
from paceline.cluster.experiments.facts import Cell
from paceline.cluster.experiments.merging import Merge
from paceline.cluster.experiments.spec import ExperimentSpec
from paceline.db.models.experiments import ExperimentRow, TrialRow
from paceline.db.repositories import experiments as rows
from paceline.db.repositories.experiments import TrialWithJob


def add(session: AsyncSession, row: ExperimentRow, cells: Mapping[int, Cell], spec: ExperimentSpec) -> None:
    """Add new trials, by index."""
    session.add_all([TrialRow(experiment_id=row.id, index=index, **_of_cell(index, cell, spec)) for index, cell in cells.items()])


async def apply(
    session: AsyncSession, row: ExperimentRow, change: Merge, known: Mapping[int, TrialWithJob], spec: ExperimentSpec, now: datetime
) -> None:
    """Put a merge's trials into the experiment, which is locked: those that stay, those that run anew, and new ones. `known`: the former ones."""
    present = {**change.kept, **change.anew}
    trials = await rows.trial_rows(session, row.id, present)
    for index, cell in present.items():
        for name, value in _of_cell(index, cell, spec).items():
            setattr(trials[index], name, value)
        trials[index].in_grid = True
    for index in change.kept:
        trials[index].reused = state_of(known[index]) == "completed"
    row.former_slot_seconds += sum(_slot_seconds(known[index], now) for index in change.anew)
    row.former_slot_seconds += sum(
        each.extra_slot_seconds for each in await rows.resized_spans(session, [row.id]) if each.trial in change.anew
    )
    for index in change.anew:
        _reset(trials[index])
    add(session, row, change.added, spec)


def _of_cell(index: int, cell: Cell, spec: ExperimentSpec) -> dict[str, Any]:
    return {
        "key": cell.key,
        "configuration": cell.index // spec.repeats,
        "repeat": cell.repeat,
        "values": dict(cell.values),
        "world_size": cell.world_size,
        "baseline": cell.baseline,
        "document": named(cell.document, spec, index),
        "refusal": cell.refusal,
    }


def _slot_seconds(known: TrialWithJob, now: datetime) -> float:
    """The slot-seconds of a trial, as if its generations that have ended had as many ranks as it asks for: see `ResizedSpan`."""
    trial, job = known
    return 0.0 if job is None else trial.world_size * job.ran_seconds + job.world_size * (job.held_seconds(now) - job.ran_seconds)


def _reset(trial: TrialRow) -> None:
    """Make a trial one that waits."""
    trial.job_id, trial.paused_for, trial.rungs = None, None, []
    trial.metric = trial.samples_per_second = None
    trial.cancelled = trial.pruned = trial.reused = trial.metric_is_final = False
    trial.metric_step = 0
