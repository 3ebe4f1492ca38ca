"""What an experiment would run, without running it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paceline.api.core.context import Services
from paceline.api.errors import ProblemError
from paceline.api.schemas.experiments import ExperimentPlan, PlannedConfiguration, ReplacedExperiment
from paceline.api.services.experiments import experiments
from paceline.api.services.experiments.earlier_jobs import earlier_times
from paceline.api.services.experiments.expansion import expand_apart, field_errors
from paceline.api.services.experiments.trial_jobs import owner_of
from paceline.api.services.planning import plan, plan_auto
from paceline.cluster.experiments.draws import most_draws
from paceline.cluster.experiments.errors import ExperimentRefusedError
from paceline.cluster.experiments.facts import Cell
from paceline.cluster.experiments.grid import TrialGrid, axes_of, samples_of_search
from paceline.cluster.experiments.spec import ExperimentSpec
from paceline.cluster.experiments.time_left import TrialTime, seconds_left, slot_seconds_left, still_to_draw
from paceline.cluster.states import JobState, NodeState
from paceline.db.repositories import experiments as rows
from paceline.db.repositories import nodes as node_rows
from paceline.training.spec.job import JobSpec

#: Configurations that are planned as jobs are; of the others only what the schema refuses is told.
MOST_PLANNED = 24


@dataclass(frozen=True)
class Outlook:
    """The planner's answer about one configuration."""

    refusal: str | None = None
    memory_bytes: int | None = None


async def plan_experiment(services: Services, spec: ExperimentSpec) -> ExperimentPlan:
    try:
        grid = await expand_apart(services, spec)
    except ExperimentRefusedError as error:
        return ExperimentPlan(
            trials=0,
            refused=0,
            axes=list(axes_of(spec)),
            configurations=[],
            seconds=None,
            slot_hours=None,
            errors=field_errors(error.refusals),
        )
    return await _planned(services, spec, grid)


async def _planned(services: Services, spec: ExperimentSpec, grid: TrialGrid) -> ExperimentPlan:
    first = grid.cells[:: spec.repeats]
    times, side_by_side, by_earlier = await _times(services, spec, grid)
    slot_seconds = slot_seconds_left(times)
    configurations = [await _configuration(services, spec, cell, place < MOST_PLANNED) for place, cell in enumerate(first)]
    return ExperimentPlan(
        trials=len(grid.cells) if spec.search is None else most_draws(spec.search) * spec.repeats,
        refused=spec.repeats * _count_refused(configurations),
        axes=list(grid.axes),
        configurations=configurations,
        not_planned=max(0, len(first) - MOST_PLANNED),
        seconds=seconds_left(times, side_by_side),
        by_earlier_jobs=by_earlier,
        slot_hours=None if slot_seconds is None else slot_seconds / 3600,
        replaces=await _replaced(services, spec, grid),
    )


async def _times(services: Services, spec: ExperimentSpec, grid: TrialGrid) -> tuple[list[TrialTime], int, bool]:
    """How long trials took that the experiment of this name has run, with those that it has not; how many fit side by side; and whether other jobs
    stand in for trials that have ended."""
    missing, times, now = {cell.key: cell for cell in grid.cells if cell.refusal is None}, list[TrialTime](), services.now()
    async with services.control.read() as session:
        row = await rows.by_name(session, spec.project, spec.name)
        for known in await rows.trials(session, row.id) if row else []:
            if known.job is not None and known.job.state is JobState.COMPLETED:
                missing.pop(known.trial.key, None)
                times.append(TrialTime(known.trial.world_size, 1, known.job.held_seconds(now), has_ended=True))
        slots = sum(node.slots for node in await node_rows.present(session) if node.state is NodeState.READY)
        alike = samples_of_search(spec) if spec.search else [*missing.values()][: MOST_PLANNED * spec.repeats : spec.repeats]
        others = [] if times else await earlier_times(session, alike)
    times += _not_begun(missing.values())
    if spec.search is not None:
        times += still_to_draw(times or _not_begun(alike), most_draws(spec.search) * spec.repeats - len(times))
    largest = max((each.world_size for each in times if not each.has_ended), default=1)
    return [*times, *others], min(spec.at_once or slots, max(1, slots // largest)), bool(others)


def _not_begun(cells: Iterable[Cell]) -> list[TrialTime]:
    return [TrialTime(cell.world_size, 1, 0.0, has_ended=False) for cell in cells]


async def _replaced(services: Services, spec: ExperimentSpec, grid: TrialGrid) -> ReplacedExperiment | None:
    """Return the experiment that would get this grid, with the trials that this would cancel; None: there is none of this project and name."""
    async with services.control.read() as session:
        row = await rows.by_name(session, spec.project, spec.name)
        known = await experiments.known_trials(session, row) if row else {}
    if row is None:
        return None
    change = await experiments.change_of(row, spec, grid, known)
    going = [known[index] for index in change.retired]
    return ReplacedExperiment(id=row.id, created_by=owner_of(row), cancels=len(experiments.jobs_to_cancel(going)))


def _count_refused(configurations: Sequence[PlannedConfiguration]) -> int:
    return sum(each.refusal is not None for each in configurations)


async def _configuration(services: Services, spec: ExperimentSpec, cell: Cell, is_planned: bool) -> PlannedConfiguration:
    outlook = await _outlook(services, cell) if is_planned and cell.refusal is None else Outlook(cell.refusal)
    return PlannedConfiguration(
        values=dict(cell.values),
        world_size=cell.world_size,
        repeats=spec.repeats,
        baseline=cell.baseline,
        refusal=outlook.refusal,
        memory_bytes=outlook.memory_bytes,
    )


async def _outlook(services: Services, cell: Cell) -> Outlook:
    try:
        resolved = await plan_auto.resolve(services, JobSpec.model_validate(cell.document))
        told = await plan.plan(services, resolved, sees_folders=False)
    except ProblemError as error:
        return Outlook(refusal=error.detail)
    return Outlook(memory_bytes=told.memory_per_rank.total if told.memory_per_rank else None)
