"""The comparison of two jobs: their specs, their numbers step by step, their parameters."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError
from paceline.api.schemas.comparison import (
    ComparedJob,
    Comparison,
    ComparisonReport,
    FirstDifference,
    MetricComparison,
    ParameterComparison,
)
from paceline.api.schemas.comparison import SpecDifference as SpecDifferenceView
from paceline.api.services.history import steps
from paceline.api.services.history.steps import CountedStep
from paceline.api.services.jobs import jobs
from paceline.api.services.specs.stored_specs import required_spec_of
from paceline.cluster.history import comparison as rules
from paceline.cluster.history.comparison import ABSENT, ComparedRun, MetricTallies, MetricTally, Parameters, SpecFieldDifference
from paceline.cluster.history.lineage import Line, is_undone
from paceline.cluster.states import EndReason
from paceline.db.models.jobs import GenerationRow, JobRow
from paceline.db.repositories import checkpoints as checkpoint_rows
from paceline.db.repositories import incidents as incident_rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import step_records
from paceline.monitoring.points import TRAINER_NAMES
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec

#: Metrics of the job as a whole, which are the same on every machine where the run is the same.
COMPARED = ("loss", "gradient_norm", "learning_rate")
EVALUATED = "eval_"
MEASURED = TRAINER_NAMES - set(COMPARED)
MOST_JOBS = 8


def named(words: Sequence[str]) -> tuple[str, ...]:
    """The ids of different jobs. Raises ProblemError where they are too few or too many."""
    job_ids = tuple(dict.fromkeys(words))
    if not 2 <= len(job_ids) <= MOST_JOBS:
        raise ProblemError("invalid_parameter", f"jobs names {len(job_ids)} different jobs; name 2 to {MOST_JOBS}, as jobs=ID,ID")
    return job_ids


async def compare(control: AsyncSession, points: AsyncSession, job_ids: Sequence[str]) -> ComparisonReport:
    """Compare each job with the first one."""
    first, *others = [await _side(control, points, await jobs.find(control, job_id)) for job_id in job_ids]
    return ComparisonReport(items=[await _compare(control, points, first, other) for other in others])


class ComparisonSide:
    """One of the two jobs: its row, and its history."""

    def __init__(self, job: JobRow, lines: list[Line], run: ComparedRun) -> None:
        self.job, self.lines, self.run = job, lines, run
        self.spec = required_spec_of(job)

    def describe(self) -> ComparedJob:
        run = self.run
        return ComparedJob(
            id=self.job.id,
            name=self.job.name,
            state=run.state,
            last_step=run.last_step,
            world_sizes=list(run.world_sizes),
            recoveries=run.recoveries,
            resizes=run.resizes,
            pauses=run.pauses,
        )


async def _side(control: AsyncSession, points: AsyncSession, job: JobRow) -> ComparisonSide:
    generations = await job_rows.generations_of(control, job.id)
    lines = await steps.lines_of(points, job.id, generations)
    incidents = await incident_rows.of_job(control, job.id)
    sizes = {row.generation: row.world_size for row in generations}
    last_steps = {line.generation: line.last for line in lines}
    if not lines:
        last_steps = {generation: told.last for generation, told in (await step_records.recorded(points, job.id)).items()}
    run = ComparedRun(
        state=job.state,
        last_step=max(last_steps.values(), default=None),
        world_sizes=tuple(sizes[generation] for generation in sorted(last_steps) if generation in sizes),
        tells_all=bool(lines),
        points_removed_to=await steps.points_removed_to(points, job.id),
        recoveries=sum(row.next_generation is not None for row in incidents),
        resizes=_ended_by(generations, "resized"),
        pauses=_ended_by(generations, EndReason.PAUSED),
    )
    return ComparisonSide(job, lines, run)


def _ended_by(generations: Sequence[GenerationRow], reason: str) -> int:
    """Whether a generation was ended for this reason and followed by another one."""
    newest = max((row.generation for row in generations), default=0)
    return sum(row.end_reason == reason and row.generation < newest for row in generations)


async def _compare(control: AsyncSession, points: AsyncSession, one: ComparisonSide, other: ComparisonSide) -> Comparison:
    tallies = await _tally(points, one, other)
    hashes = await _parameters(control, one, other)
    parameters = Parameters(hashes.step, hashes.equal) if hashes else None
    verdict = rules.verdict(one.run, other.run, tallies, parameters)
    return Comparison(
        jobs=[one.describe(), other.describe()],
        verdict=verdict,
        same_run=verdict in ("same", "same_so_far"),
        text=rules.sentence(one.run, other.run, tallies, parameters),
        spec_differences=[_spec_view(each) for each in _spec_differences(one.spec, other.spec)],
        metrics=[_metric_view(tally) for tally in tallies.ordered],
        parameters=hashes,
    )


# --- steps


async def _tally(points: AsyncSession, one: ComparisonSide, other: ComparisonSide) -> MetricTallies:
    """Compare both jobs step by step, so that little is held in memory; beyond the shorter one's end there is nothing to compare. Where the points of
    some steps have been removed no step is: an answer from the others alone would not be true."""
    tallies = MetricTallies()
    if any(side.run.last_step is None or side.run.points_removed_to is not None for side in (one, other)):
        return tallies
    assert one.run.last_step is not None
    assert other.run.last_step is not None
    last = min(one.run.last_step, other.run.last_step)
    begins = max((side.lines[0].first for side in (one, other) if side.lines), default=0)
    async for step, left, right in _joined(_numbers(points, one, begins, last), _numbers(points, other, begins, last)):
        if left is not None and right is not None:
            tallies.add(step, left, right)
        else:
            tallies.miss(step, left or right or {})
    return tallies


Numbers = Mapping[str, float]


async def _numbers(points: AsyncSession, side: ComparisonSide, first: int, last: int) -> AsyncIterator[tuple[int, Numbers]]:
    async for each in steps.counted_steps(points, side.job.id, side.lines, first, last):
        if numbers := compared(each, side.run):
            yield each.step, numbers


def compared(each: CountedStep, run: ComparedRun) -> Numbers:
    """The numbers of a step that are equal wherever the run is the same. A script chooses its names by itself."""
    return {
        name: float(value)
        for name, value in each.values.items()
        if name in COMPARED or name.startswith(EVALUATED) or not (run.tells_all or name in MEASURED or rules.measures_speed(name))
    }


async def _joined(
    one: AsyncIterator[tuple[int, Numbers]], other: AsyncIterator[tuple[int, Numbers]]
) -> AsyncIterator[tuple[int, Numbers | None, Numbers | None]]:
    left, right = await anext(one, None), await anext(other, None)
    while left is not None or right is not None:
        step = min(each[0] for each in (left, right) if each is not None)
        mine = left[1] if left is not None and left[0] == step else None
        theirs = right[1] if right is not None and right[0] == step else None
        yield step, mine, theirs
        left = await anext(one, None) if mine is not None else left
        right = await anext(other, None) if theirs is not None else right


def _metric_view(tally: MetricTally) -> MetricComparison:
    first = tally.first_difference
    return MetricComparison(
        name=tally.name,
        compared=tally.compared,
        equal=tally.equal,
        first_difference=FirstDifference(step=first[0], values=list(first[1:])) if first else None,
        largest_relative_difference=tally.largest if tally.compared else None,
        only_in_one=tally.only_in_one,
    )


# --- parameters and specs


async def _parameters(control: AsyncSession, one: ComparisonSide, other: ComparisonSide) -> ParameterComparison | None:
    left, right = await _hashes(control, one), await _hashes(control, other)
    shared = left.keys() & right.keys()
    if not shared:
        return None
    step = max(shared)
    return ParameterComparison(step=step, hashes=[left[step], right[step]], equal=left[step] == right[step])


async def _hashes(control: AsyncSession, side: ComparisonSide) -> dict[int, str]:
    """The hash of the parameters by step, from the newest generation that saved it, without steps that were undone."""
    saved = await checkpoint_rows.parameter_hashes(control, side.job.id)
    return {step: digest for step, generation, digest in saved if not is_undone(side.lines, generation, step)}


def _spec_differences(one: JobSpec, other: JobSpec) -> list[SpecFieldDifference]:
    reproducible = derived.is_reproducible(one) and derived.is_reproducible(other)
    return rules.spec_differences(_effective(one), _effective(other), reproducible=reproducible)


def _effective(spec: JobSpec) -> dict[str, Any]:
    """The spec with values that follow from other fields: a default may depend on the world."""
    document = spec.model_dump(mode="json") | {"reproducible": derived.is_reproducible(spec)}
    if spec.training is not None:
        document["training"] |= {"micro_batch_size": derived.micro_batch_size(spec)}
    return document


def _spec_view(each: SpecFieldDifference) -> SpecDifferenceView:
    left, right = ("absent" if value is ABSENT else json.dumps(value) for value in each.values)
    effect = "may change the numbers" if each.changes_numbers else "does not change the numbers"
    return SpecDifferenceView(
        path=each.path, values=[left, right], changes_numbers=each.changes_numbers, text=f"{each.path}: {left} and {right}; {effect}"
    )
