"""The curves of any range in at most so many buckets: raw points where they fit, else the finest roll-up that does.

Each name and rank is decided by itself, so a metric that is reported once in a hundred steps keeps every point of its own.
Extremes survive every choice; edge buckets may hold a few steps outside of the range.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError
from paceline.api.schemas.metrics import Curve, JobMetrics
from paceline.cluster.history.storage import StorageKind, finest_curves_from, has_points_from
from paceline.db.repositories import metrics as repository
from paceline.db.repositories import rollups, storage
from paceline.db.repositories.metric_columns import RecordColumns, StoredBucket
from paceline.db.repositories.metrics import StepRange
from paceline.db.repositories.rollups import RollupTail
from paceline.monitoring.points import JOB_METRICS, MetricUnit, unit_of
from paceline.monitoring.rollup import Bucket, coarsen, level_for

#: Steps in a bucket of the roll-ups that tell how far a rank went: few enough to read all of them.
COARSE = 1_000
#: Points of one answer, of all its curves together, and curves of one answer.
MAX_POINTS, MAX_CURVES = 200_000, 20_000
#: Rows of roll-ups that are read together.
ROWS_AT_ONCE = 10_000
_values = msgspec.json.Decoder(dict[str, float | str])
Generations = Mapping[int, Mapping[int, Bucket]]  # generation -> bucket number -> bucket


async def job_metrics(
    session: AsyncSession,
    job_id: str,
    *,
    wanted: Sequence[str] | None,
    ranks: Sequence[int],
    steps: tuple[int | None, int | None],
    limit: int,
    of_own_model: bool,
) -> JobMetrics:
    """The curves of a job. `wanted` None: the job's own metrics that it has reported. `of_own_model`: it trains one of Paceline's
    models. Of many curves each has fewer buckets than `limit`; raises ProblemError where they are too many for one answer."""
    as_of = await repository.newest_seq(session, job_id)  # before the rest: a point read twice is harmless, one missed is not
    known = await repository.names(session, job_id)
    gone_to = await storage.gone_to_steps(session, job_id)
    tails = (await rollups.tail(session, job_id, ranks)).by_rank()
    chosen = [name for name in known if (name in JOB_METRICS if wanted is None else name in wanted)]
    limit = min(limit, buckets_of_each(len(chosen), len(ranks)))
    whole: list[StepRange] = []
    curves: list[Curve] = []
    for rank in ranks:
        reach = await rank_reach(session, job_id, chosen, rank, gone_to)
        if reach is None:
            continue
        whole.append(reach)
        shown = StepRange(max(reach.first, steps[0] or 0), reach.last if steps[1] is None else min(reach.last, steps[1]))
        curves += await _of_rank(session, job_id, chosen, rank, shown, limit, gone_to, tails.get(rank, RollupTail()))
    return JobMetrics(
        job_id=job_id,
        first_step=min((reach.first for reach in whole), default=None),
        last_step=max((reach.last for reach in whole), default=None),
        names=known,
        curves=curves if of_own_model else [_without_nats(curve) for curve in curves],
        as_of_seq=as_of,
    )


def buckets_of_each(names: int, ranks: int) -> int:
    """The most buckets of each curve of an answer. Raises ProblemError where even one of each would be too many."""
    if names * ranks > MAX_CURVES:
        said = f"{names} names of {ranks} ranks are {names * ranks} curves; the limit is {MAX_CURVES}: ask for fewer in several requests"
        raise ProblemError("invalid_parameter", said)
    return max(1, MAX_POINTS // max(1, names * ranks))


def _without_nats(curve: Curve) -> Curve:
    """The metrics without a unit for the loss: the unit of a loss that a user's own code computes is unknown."""
    return curve.model_copy(update={"unit": MetricUnit.NONE}) if curve.unit == MetricUnit.NATS else curve


async def rank_reach(session: AsyncSession, job_id: str, names: Sequence[str], rank: int, gone_to: Mapping[str, int]) -> StepRange | None:
    """The first and last step of one rank; of its roll-ups where points have been deleted."""
    points = await repository.step_range(session, job_id, rank)
    if StorageKind.POINTS not in gone_to:
        return points
    rolled = await repository.rolled_range(session, job_id, rank, names, max(COARSE, finest_curves_from(0, gone_to)))
    if points is None or rolled is None:
        return points or rolled
    return StepRange(min(points.first, rolled.first), max(points.last, rolled.last))


async def _of_rank(
    session: AsyncSession,
    job_id: str,
    names: Sequence[str],
    rank: int,
    steps: StepRange,
    limit: int,
    gone_to: Mapping[str, int],
    tail: RollupTail,
) -> list[Curve]:
    if not names or steps.last < steps.first:
        return []
    if has_points_from(steps.first, gone_to):
        records = await repository.raw(session, job_id, rank, steps, limit)
        if len(records) <= limit:
            return await asyncio.to_thread(_raw_curves, records, names, rank)
    finest = finest_curves_from(steps.first, gone_to)
    level = max(level_for(steps.last - steps.first + 1, limit), finest)

    async def read(wanted: Sequence[str], level: int) -> dict[str, list[StoredBucket]]:
        """Read roll-ups by name, of some names at a time: their rows are made in the event loop."""
        stored: dict[str, list[StoredBucket]] = {}
        at_once = max(1, ROWS_AT_ONCE // limit)
        for start in range(0, len(wanted), at_once):
            some = wanted[start : start + at_once]
            stored |= _by_name(await repository.rollups(session, job_id, some, rank, level, steps, tail))
        return stored

    found = await read(names, level)
    sparse = [name for name, stored in found.items() if level > finest and sum(row.bucket.count for row in stored) <= limit]
    fine = await read(sparse, finest)
    sizes = {name: finest if name in fine else level for name in names}
    return await asyncio.to_thread(_all_rolled, {name: fine.get(name) or found.get(name, []) for name in names}, rank, sizes, limit)


def _by_name(rows: Iterable[StoredBucket]) -> dict[str, list[StoredBucket]]:
    grouped: defaultdict[str, list[StoredBucket]] = defaultdict(list)
    for row in rows:
        grouped[row.name].append(row)
    return grouped


def _raw_curves(records: Sequence[RecordColumns], names: Sequence[str], rank: int) -> list[Curve]:
    """The raw points of one rank. A successor of rank 0 reports its last moments again, which may or may not have reached its disk:
    equal values of an older generation for a step are left out. Of two values that one generation reported for a step the later one
    stands: a script's file may have the step before its `paceline.log`."""
    points: defaultdict[tuple[str, int], dict[int, tuple[int, float, float]]] = defaultdict(dict)
    told: dict[tuple[str, int], tuple[int, float]] = {}
    for record in sorted(records, key=lambda record: record.generation):
        values = _values.decode(record.values)
        for name in names:
            if name not in values:
                continue
            value = float(values[name])
            generation, before = told.setdefault((name, record.step), (record.generation, value))
            if generation == record.generation or value != before:
                points[name, record.generation][record.step] = (record.step, value, record.time)
    return [_raw_curve(name, rank, generation, list(points[name, generation].values())) for name, generation in sorted(points)]


def _raw_curve(name: str, rank: int, generation: int, points: Sequence[tuple[int, float, float]]) -> Curve:
    values = [value for _, value, _ in points]
    return Curve(
        name=name,
        unit=unit_of(name),
        rank=rank,
        generation=generation,
        bucket_steps=1,
        steps=[step for step, _, _ in points],
        minimum=values,
        maximum=values,
        mean=values,
        last=values,
        count=[1] * len(values),
        times=[time for _, _, time in points],
        nan_count=[int(math.isnan(value)) for value in values],
    )


def _all_rolled(stored: Mapping[str, Sequence[StoredBucket]], rank: int, sizes: Mapping[str, int], limit: int) -> list[Curve]:
    return [curve for name, rows in stored.items() for curve in _rolled_curves(name, rank, rows, sizes[name], limit)]


def _rolled_curves(name: str, rank: int, stored: Sequence[StoredBucket], size: int, limit: int) -> list[Curve]:
    generations: defaultdict[int, dict[int, Bucket]] = defaultdict(dict)
    for row in stored:
        generations[row.generation][row.number] = row.bucket
    fitted, size = fit(generations, size, limit)
    return [_rolled_curve(name, rank, generation, fitted[generation], size) for generation in sorted(fitted)]


def fit(generations: Generations, size: int, limit: int) -> tuple[Generations, int]:
    """Merge pairs of buckets until all curves fit: generations may overlap, and the coarsest level may still be too fine."""
    while sum(map(len, generations.values())) > max(limit, len(generations)):
        generations, size = {generation: coarsen(buckets, 2) for generation, buckets in generations.items()}, size * 2
    return generations, size


def _rolled_curve(name: str, rank: int, generation: int, buckets: Mapping[int, Bucket], size: int) -> Curve:
    rows = [buckets[number] for number in sorted(buckets)]
    return Curve(
        name=name,
        unit=unit_of(name),
        rank=rank,
        generation=generation,
        bucket_steps=size,
        steps=[row.last_step for row in rows],
        minimum=[_or_nan(row.minimum) for row in rows],
        maximum=[_or_nan(row.maximum) for row in rows],
        mean=[row.mean for row in rows],
        last=[_or_nan(row.last) for row in rows],
        count=[row.count for row in rows],
        times=[row.last_time for row in rows],
        nan_count=[row.nan_count for row in rows],
    )


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
