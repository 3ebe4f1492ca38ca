"""A reading of each rank's own card over the job's steps, as a heat map: a card that runs slow or hot is a row that stands out.

Readings meet steps by time: when a step ended is what rank 0 tells, for all ranks, since they end their steps together. Clocks of nodes that
differ shift a row by as much. A step that is shorter than a reading shows the reading of its second.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError
from paceline.api.schemas.metrics import Curve, Heatmap
from paceline.api.services.history import card_holdings, heatmap
from paceline.api.services.history.card_curves import MOST_BUCKETS, CardQuestion, began_at, clocks_of, within
from paceline.api.services.history.card_holdings import CardHolding
from paceline.api.services.history.heatmap import GridValues
from paceline.api.services.history.steps import STEP_SECONDS
from paceline.api.services.nodes.node_metrics import TimeSpan, read_buckets
from paceline.cluster.history.node_readings import KeepReadings, resolution
from paceline.db.models.jobs import JobRow
from paceline.db.repositories.rank_series import RankSeries, Statistic
from paceline.monitoring.packed import ReadingBucket, SeriesPlace
from paceline.monitoring.readings import CARD_METRICS, card

#: The name of a heat map that shows a reading of the cards: `card/sm_clock_mhz`.
PREFIX = "card/"
#: Buckets of time that are read: for each column at least, and in all at least. A column's edges are as sharp as one of them.
BUCKETS_OF_COLUMN, LEAST_BUCKETS = 4, 400


def reading_of(name: str) -> str | None:
    """The metric of the cards that a heat map's name asks for; None: it asks for one that ranks report."""
    reading = name.removeprefix(PREFIX)
    return reading if name.startswith(PREFIX) and reading in CARD_METRICS else None


@dataclass(frozen=True)
class TimedColumns:
    """Columns of a heat map and when each ended, of one generation. `edges` has one time more than there are columns: when the first began."""

    numbers: Sequence[int]
    edges: Sequence[float]

    def within(self, span: TimeSpan) -> TimedColumns | None:
        """The columns that ended within a span of time; None: none did."""
        at = [index for index, end in enumerate(self.edges[1:]) if span.holds(end)]
        if not at:
            return None
        began = max(self.edges[at[0]], span.first)
        return TimedColumns([self.numbers[index] for index in at], [began, *(self.edges[index + 1] for index in at)])


async def of_job(
    session: AsyncSession,
    points: AsyncSession,
    job: JobRow,
    now: datetime,
    keep: KeepReadings,
    *,
    reading: str,
    statistic: Statistic,
    first_step: int | None,
    last_step: int | None,
    columns: int,
) -> Heatmap:
    """Read the heat map of one reading. Raises ProblemError invalid_parameter for a job that held no card."""
    unit, name = CARD_METRICS[reading].unit, f"{PREFIX}{reading}"
    holdings = [each for each in await card_holdings.of_job(session, job, now) if each.card is not None]
    if not holdings:
        raise ProblemError("invalid_parameter", f"name={name}: no rank of this job held a card; ask for a metric that its ranks report")
    shown = await heatmap.shown_steps(session, points, job, STEP_SECONDS, (first_step, last_step), columns)
    if shown is None:
        return heatmap.empty(job.id, name, unit, statistic)
    size, first = shown.grid.bucket_steps, shown.grid.first_step
    grid = replace(shown.grid, level=size, factor=1, numbers=range(first // size, shown.last_step // size + 1))
    cells = GridValues(grid, statistic)
    asked = CardQuestion((reading,), (), (first, shown.last_step), MOST_BUCKETS, now.timestamp(), keep)
    for clock in await clocks_of(points, job.id, 0, asked):
        for series in await _of_generation(points, holdings, timed_columns(clock, size), asked, statistic):
            if series.rank < grid.ranks:
                cells.add(series)
    return heatmap.drawn(job.id, name, unit, cells, shown.last_step)


def timed_columns(clock: Curve, size: int) -> TimedColumns:
    """Columns of `size` steps each, from the times at which steps ended."""
    ends = {step // size: time for step, time in zip(clock.steps, clock.times, strict=True)}  # of each column its last
    return TimedColumns(list(ends), [began_at(clock.steps, clock.times, clock.bucket_steps), *ends.values()])


async def _of_generation(
    points: AsyncSession, holdings: Sequence[CardHolding], columns: TimedColumns, asked: CardQuestion, statistic: Statistic
) -> list[RankSeries]:
    """The series of every rank that held its card while the columns passed, a read for each node."""
    nodes: defaultdict[str, list[tuple[CardHolding, TimedColumns]]] = defaultdict(list)
    for holding in holdings:
        if (mine := columns.within(holding.span)) is not None:
            nodes[holding.node_id].append((holding, mine))
    (reading,), first, last = asked.names, columns.edges[0], columns.edges[-1]
    at = resolution(first, last, min(asked.most, max(LEAST_BUCKETS, BUCKETS_OF_COLUMN * len(columns.numbers))), asked.now, asked.keep)
    found: list[RankSeries] = []
    for node_id, held in nodes.items():
        places: defaultdict[SeriesPlace, list[tuple[CardHolding, TimedColumns]]] = defaultdict(
            list
        )  # one rank may hold a card after another
        for holding, mine in held:
            if holding.card is not None:
                places[SeriesPlace(card(holding.card), reading)].append((holding, mine))
        buckets = await read_buckets(points, node_id, TimeSpan(first, last), at, places.__contains__)
        for place, series in buckets.items():
            for holding, mine in places[place]:
                values = within(series, at.seconds, mine.edges)
                found.append(_series(holding.rank, mine.numbers, values, statistic, CARD_METRICS[reading].step))
    return found


def _series(rank: int, numbers: Sequence[int], values: Sequence[ReadingBucket | None], statistic: Statistic, step: float) -> RankSeries:
    known = [(number, each) for number, each in zip(numbers, values, strict=True) if each is not None]
    told = [(each.sum if statistic is Statistic.MEAN else each.maximum) * step for _, each in known]
    return RankSeries(rank, [number for number, _ in known], told, [each.count for _, each in known])
