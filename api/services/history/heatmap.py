"""One metric of every rank at every step, as a grid small enough to draw: a straggler is a bright row, a stall a bright column.

Few steps come from raw points, many from roll-ups; neighbouring ranks and steps share a cell where there are more than cells.
"""

from __future__ import annotations

import math
import operator
from array import array
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError
from paceline.api.schemas.metrics import Heatmap
from paceline.api.services.history.curves import rank_reach
from paceline.api.services.history.performance import EXPOSED
from paceline.api.services.history.steps import STEP_SECONDS
from paceline.cluster.history.storage import finest_curves_from, has_points_from
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import metrics as repository
from paceline.db.repositories import rank_series, rollups, storage
from paceline.db.repositories.metric_columns import StoredBucket
from paceline.db.repositories.metrics import StepRange
from paceline.db.repositories.rank_series import RankSeries, Statistic
from paceline.monitoring.points import MetricUnit, unit_of
from paceline.monitoring.rollup import LEVELS

#: Derived: what a step took without waiting for other ranks. Of ranks that wait for each other, only this tells which one is slow.
BUSY_SECONDS = "busy_seconds"
#: Raw points are read where there are no more than this.
MAX_RAW = 20_000
MAX_ROWS = 1_024
#: Buckets that are read for one grid, and cells that it may have, by how many metrics are read: 128 columns of 1,024 ranks, or 100 of a
#: difference. A bucket takes about half a microsecond in the database, and as long on its way into the grid.
MAX_READ = {1: 131_072, 2: 102_400}


@dataclass(frozen=True)
class Grid:
    """Geometry of a heat map. Rows are `ranks_per_row` ranks each; columns are `bucket_steps` steps each, from `first_step` on."""

    ranks: int
    ranks_per_row: int
    level: int  # steps in a bucket that is read; 1: raw points
    factor: int  # buckets in a column
    numbers: range  # buckets that are read

    @property
    def rows(self) -> int:
        return math.ceil(self.ranks / self.ranks_per_row)

    @property
    def columns(self) -> int:
        return (self.numbers[-1] // self.factor) - (self.numbers[0] // self.factor) + 1

    @property
    def bucket_steps(self) -> int:
        return self.level * self.factor

    @property
    def first_step(self) -> int:
        return self.numbers[0] // self.factor * self.bucket_steps


def grid_of(steps: StepRange, ranks: int, columns: int, *, finest: int, metrics: int = 1) -> Grid:
    """Choose what is read, and how much of it shares a cell.

    The coarsest level that still has as many buckets as columns are wanted, and none so fine that more than MAX_READ are read. `finest`:
    steps in a bucket of the finest level that is kept; 1 where raw points are. `metrics`: how many are read, 1 or 2.
    """
    ranks_per_row, most = math.ceil(ranks / MAX_ROWS), MAX_READ[metrics]
    columns = max(1, min(columns, most // math.ceil(ranks / ranks_per_row)))

    def numbers(level: int) -> range:
        return range(steps.first // level, steps.last // level + 1)

    raw = finest == 1 and ranks * len(numbers(1)) <= MAX_RAW
    levels = [1] if raw else [level for level in LEVELS if level >= finest]
    readable = [level for level in levels if ranks * len(numbers(level)) <= most] or levels[-1:]
    level = next((level for level in reversed(readable) if len(numbers(level)) >= columns), readable[0])
    return Grid(ranks, ranks_per_row, level, math.ceil(len(numbers(level)) / columns), numbers(level))


@dataclass
class GridValues:
    """Values of one metric in a grid, row by row. A cell without a value is NaN."""

    grid: Grid
    statistic: Statistic
    _values: list[float] = field(init=False)
    _counts: list[float] = field(init=False)
    _gapless: Sequence[float] = field(init=False, default=())  # bucket numbers, each one more than the one before
    _columns: int = field(init=False)

    def __post_init__(self) -> None:
        self._columns = self.grid.columns
        size = self.grid.rows * self._columns
        self._values = [-math.inf if self.statistic is Statistic.MAXIMUM else 0.0] * size
        self._counts = [0.0] * size

    def add(self, series: RankSeries) -> None:
        """Add buckets of one rank: sums and counts for MEAN, maxima for MAXIMUM."""
        values, counts, first = self._values, self._counts, self._first_place(series)
        row = self._dense(series, first)
        if row is not None and not any(counts[row]):  # as most rows of a large map are: several times as fast
            values[row], counts[row] = series.values, series.counts
            return
        largest, factor = self.statistic is Statistic.MAXIMUM, self.grid.factor
        for number, value, count in zip(series.numbers, series.values, series.counts, strict=True):
            place = first + int(number) // factor
            counts[place] += count
            if not largest:
                values[place] += value
            elif value > values[place]:
                values[place] = value

    def subtract(self, series: RankSeries) -> None:
        """Take the sums of another metric of the same points from those that are there."""
        values, first = self._values, self._first_place(series)
        row = self._dense(series, first)
        if row is not None:
            values[row] = map(operator.sub, values[row], series.values)
            return
        factor = self.grid.factor
        for number, value in zip(series.numbers, series.values, strict=True):
            values[first + int(number) // factor] -= value

    def _first_place(self, series: RankSeries) -> int:
        """The place of bucket 0 in the rank's row, which may lie before the grid."""
        grid = self.grid
        return series.rank // grid.ranks_per_row * self._columns - grid.numbers[0] // grid.factor

    def _dense(self, series: RankSeries, first_place: int) -> slice | None:
        """The cells of the series' buckets where each has one of its own and none is missing between them."""
        numbers = series.numbers
        if self.grid.factor > 1 or not numbers:
            return None
        first = int(numbers[0])
        if numbers != self._gapless:  # most ranks have the buckets of the rank before them
            if list(numbers) != list(range(first, first + len(numbers))):
                return None
            self._gapless = numbers
        begin = first_place + first
        return slice(begin, begin + len(numbers))

    def finished(self) -> array[float]:
        is_mean, is_whole = self.statistic is Statistic.MEAN, all(self._counts)
        if is_whole:
            return array("f", map(operator.truediv, self._values, self._counts) if is_mean else self._values)
        counted = zip(self._values, self._counts, strict=True)
        return array("f", [(value / count if is_mean else value) if count else math.nan for value, count in counted])


async def of_job(
    session: AsyncSession,
    points: AsyncSession,
    job: JobRow,
    *,
    name: str,
    statistic: Statistic,
    first_step: int | None,
    last_step: int | None,
    columns: int,
) -> Heatmap:
    """Read the heat map of one metric. Raises ProblemError invalid_parameter for a metric that the job has not reported."""
    reported = STEP_SECONDS if name == BUSY_SECONDS else name
    if name == BUSY_SECONDS and statistic is not Statistic.MEAN:
        raise ProblemError("invalid_parameter", f"statistic={statistic}: {BUSY_SECONDS} is a difference of means; ask for statistic=mean")
    unit = MetricUnit.SECONDS if name == BUSY_SECONDS else unit_of(name)
    known = await repository.names(points, job.id)
    if known and reported not in known:
        raise ProblemError("invalid_parameter", f"name={name}: the job has not reported {reported}; it has {', '.join(known)}")
    shown = await shown_steps(session, points, job, reported, (first_step, last_step), columns, metrics=2 if name == BUSY_SECONDS else 1)
    if shown is None:
        return empty(job.id, name, unit, statistic)
    grid, cells = shown.grid, GridValues(shown.grid, statistic)
    for series in await _read(points, job.id, reported, grid, statistic):
        cells.add(series)
    if name == BUSY_SECONDS:
        for series in await _read(points, job.id, EXPOSED, grid, statistic):
            cells.subtract(series)
    return drawn(job.id, name, unit, cells, shown.last_step)


@dataclass(frozen=True)
class ShownSteps:
    """The steps that a heat map shows, as a grid."""

    grid: Grid
    last_step: int


async def shown_steps(
    session: AsyncSession,
    points: AsyncSession,
    job: JobRow,
    reported: str,
    asked: tuple[int | None, int | None],
    columns: int,
    *,
    metrics: int = 1,
) -> ShownSteps | None:
    """The grid of the asked steps, as far as rank 0 has reported the metric, or the lowest rank that has; None: none has.

    `asked`: the first and the last step, None: all. `metrics`: how many will be read, 1 or 2.
    """
    gone_to = await storage.gone_to_steps(points, job.id)
    found = await rank_reach(points, job.id, [reported], 0, gone_to)
    if found is None and (rank := await repository.lowest_rank(points, job.id, reported)) is not None:
        found = await rank_reach(points, job.id, [reported], rank, gone_to)
    ranks = await job_rows.largest_world(session, job.id)
    first, last = asked
    steps = found and StepRange(max(found.first, first or 0), found.last if last is None else min(found.last, last))
    if steps is None or steps.last < steps.first or not ranks:
        return None
    finest = 1 if has_points_from(steps.first, gone_to) else finest_curves_from(steps.first, gone_to)
    return ShownSteps(grid_of(steps, ranks, columns, finest=finest, metrics=metrics), steps.last)


def drawn(job_id: str, name: str, unit: str, cells: GridValues, last_step: int) -> Heatmap:
    grid = cells.grid
    return Heatmap(
        job_id=job_id,
        name=name,
        unit=unit,
        statistic=cells.statistic,
        ranks=grid.ranks,
        ranks_per_row=grid.ranks_per_row,
        rows=grid.rows,
        columns=grid.columns,
        first_step=grid.first_step,
        last_step=last_step,
        bucket_steps=grid.bucket_steps,
        cells=_encode(cells.finished()),
    )


async def _read(points: AsyncSession, job_id: str, name: str, grid: Grid, statistic: Statistic) -> list[RankSeries]:
    """The buckets of every rank, those of points that are in no roll-up yet included."""
    if grid.level == 1:
        return await _raw_series(points, job_id, name, grid)
    found = await rank_series.read(points, job_id, name, range(grid.ranks), grid.level, grid.numbers, statistic)
    for rank, tail in (await rollups.tail(points, job_id)).by_rank().items():
        if rank < grid.ranks:
            found += [_of_bucket(stored, statistic) for stored in tail.add_to((), grid.level, names=(name,), numbers=grid.numbers)]
    return found


def _of_bucket(stored: StoredBucket, statistic: Statistic) -> RankSeries:
    bucket, count = stored.bucket, stored.bucket.count - stored.bucket.nan_count
    value = bucket.sum if statistic is Statistic.MEAN else bucket.maximum
    return (
        RankSeries(stored.rank, (stored.number,), (value,), (count,))
        if count and value is not None
        else RankSeries(stored.rank, (), (), ())
    )


async def _raw_series(points: AsyncSession, job_id: str, name: str, grid: Grid) -> list[RankSeries]:
    steps = StepRange(grid.numbers[0], grid.numbers[-1])
    found = await repository.raw_of_ranks(points, job_id, range(grid.ranks), steps)
    values = [(record.rank, record.step, rollups.read_values(record).get(name, math.nan)) for record in found]
    return [RankSeries(rank, (step,), (value,), (1,)) for rank, step, value in values if math.isfinite(value)]


def _encode(cells: array[float]) -> str:
    if array("H", [1]).tobytes() != b"\x01\x00":
        cells.byteswap()  # the answer is little-endian on every machine
    return b64encode(cells.tobytes()).decode()


def empty(job_id: str, name: str, unit: str, statistic: Statistic) -> Heatmap:
    return Heatmap(
        job_id=job_id,
        name=name,
        unit=unit,
        statistic=statistic,
        ranks=0,
        ranks_per_row=1,
        rows=0,
        columns=0,
        first_step=None,
        last_step=None,
        bucket_steps=1,
        cells="",
    )
