"""The reports of rank 0, or another rank, on a job's steps, parsed once, and the ones that count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError
from paceline.cluster.history.lineage import Line, lineage
from paceline.cluster.history.storage import StorageKind, has_points_from
from paceline.db.models.jobs import GenerationRow
from paceline.db.repositories import step_records, storage
from paceline.db.repositories.metric_columns import RecordColumns

_values = msgspec.json.Decoder(dict[str, float | str])
#: Every step that a rank has done itself has it; what a successor of rank 0 tells again has not.
STEP_SECONDS = "step_seconds"
#: No step of ours took longer; a user's own metric of that name may say anything.
MOST_SECONDS = 1e9


@dataclass(frozen=True)
class StepRecord:
    generation: int
    step: int
    time: float  # its end, seconds since the epoch on the rank's clock
    values: dict[str, float | str]

    @property
    def own(self) -> bool:
        """Whether the generation that did the step reported it itself."""
        seconds = self.values.get(STEP_SECONDS)
        return isinstance(seconds, float) and 0 <= seconds <= MOST_SECONDS

    @property
    def seconds(self) -> float:
        return float(self.values[STEP_SECONDS])

    @property
    def began(self) -> float:
        return self.time - self.seconds


def parse(rows: Iterable[RecordColumns]) -> list[StepRecord]:
    return [StepRecord(row.generation, row.step, row.time, _values.decode(row.values)) for row in rows]


async def require_points(points: AsyncSession, job_id: str) -> None:
    """Raise no_longer_kept where the points of some steps have been deleted: an answer from the others alone would not be true."""
    gone_to = await storage.gone_to_steps(points, job_id)
    if not has_points_from(0, gone_to):
        raise no_longer_kept(job_id, gone_to)


async def points_removed_to(points: AsyncSession, job_id: str) -> int | None:
    """The step up to which the points of a job have been removed; None: all are kept."""
    gone_to = await storage.gone_to_steps(points, job_id)
    return None if has_points_from(0, gone_to) else gone_to.get(StorageKind.POINTS, 0)


def no_longer_kept(job_id: str, gone_to: Mapping[str, int]) -> ProblemError:
    step = gone_to.get(StorageKind.POINTS, 0)
    return ProblemError(
        "no_longer_kept", f"the raw points of job {job_id} up to step {step:,} have been removed; its history says when and why"
    )


@dataclass(frozen=True)
class CountedStep:
    """One step as it counts: the values of the generation whose work counts, or of its successor in its place."""

    step: int
    generation: int
    values: dict[str, float | str]
    told: int  # how often the generation told of the step itself
    discarded: int  # how many other generations did the same step, without its counting
    time: float  # when that was told, seconds since the epoch on the rank's clock


async def lines_of(points: AsyncSession, job_id: str, generations: Sequence[GenerationRow]) -> list[Line]:
    newest = await step_records.newest_steps(points, job_id, STEP_SECONDS)
    return lineage({row.generation: row.start_step for row in generations}, newest)


async def counted_steps(
    points: AsyncSession, job_id: str, lines: Sequence[Line], first: int = 0, last: int | None = None, *, rank: int = 0
) -> AsyncIterator[CountedStep]:
    """Every known step, in order."""
    carried: list[StepRecord] = []
    async for chunk in step_records.in_order(points, job_id, first, last, rank=rank):
        known, carried = await asyncio.to_thread(_merge_all_but_last, carried, chunk, lines)
        for step in known:
            yield step
    for step in merge_records(carried, lines):
        yield step


def _merge_all_but_last(
    carried: Sequence[StepRecord], chunk: Sequence[RecordColumns], lines: Sequence[Line]
) -> tuple[list[CountedStep], list[StepRecord]]:
    """(the steps that no later chunk has more of, the records of the last one)."""
    found = [*carried, *parse(chunk)]
    newest = found[-1].step
    return list(merge_records((each for each in found if each.step < newest), lines)), [each for each in found if each.step == newest]


def merge_records(records: Iterable[StepRecord], lines: Sequence[Line]) -> Iterator[CountedStep]:
    """Merge the records of each step. `records` are in order of steps, all of each step together."""
    for number, group in groupby(records, key=lambda record: record.step):
        told = list(group)
        generation = _counting_generation(number, told, lines)
        mine = [record for record in told if record.generation == generation or (not record.own and record.generation > generation)]
        ordered = _own_first(mine, generation)
        values = {name: value for record in reversed(ordered) for name, value in record.values.items()}
        if values:
            others = {record.generation for record in told if record.own and record.generation != generation}
            own = sum(record.own for record in told if record.generation == generation)
            yield CountedStep(number, generation, values, own, len(others), ordered[0].time)


def _counting_generation(step: int, told: Sequence[StepRecord], lines: Sequence[Line]) -> int:
    """The generation whose line the step is in; else the newest that had begun before the one that reports the step in its place."""
    inside = [line.generation for line in lines if line.first <= step <= line.last]
    if inside:
        return inside[0]
    reporters = [record.generation for record in told if not record.own]
    before = [line.generation for line in lines if reporters and line.generation < min(reporters)]
    return max(before, default=max(record.generation for record in told))


def _own_first(records: Sequence[StepRecord], generation: int) -> list[StepRecord]:
    return sorted(records, key=lambda record: (record.generation != generation, not record.own))
