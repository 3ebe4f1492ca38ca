"""What a rank's own card did, over the job's steps or over time.

Steps and readings meet by time: both are on the clock of one machine. A reading counts for every step that it overlaps, so a step that is shorter
than a second shows the reading of its second.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.schemas.metrics import Curve
from paceline.api.schemas.readings import CardCurve
from paceline.api.services.history import curves
from paceline.api.services.history.card_holdings import CardHolding
from paceline.api.services.nodes.node_metrics import TimeSpan, in_unit, read_buckets
from paceline.cluster.history.node_readings import KeepReadings, resolution
from paceline.db.repositories import metrics as metric_rows
from paceline.monitoring.packed import Buckets, ReadingBucket, SeriesPlace
from paceline.monitoring.readings import CARD_METRICS, card

#: Buckets of time that are read for the steps of one rank, at most.
MOST_BUCKETS = 4_000
#: Metrics that tell when a step ended, the first that a rank has: any of its metrics will do.
_CLOCKS = ("step_seconds", "loss")


@dataclass(frozen=True)
class CardQuestion:
    """A question about the cards of a job. `steps`: the first and the last, None: all; `now` in seconds since the epoch."""

    names: Sequence[str]
    ranks: Sequence[int]
    steps: tuple[int | None, int | None]
    most: int
    now: float
    keep: KeepReadings


async def by_time(session: AsyncSession, job_id: str, holdings: Sequence[CardHolding], asked: CardQuestion) -> list[CardCurve]:
    """The curves of every holding over the time that it lasted; `asked.steps` has no meaning here."""
    held = [each for each in holdings if each.card is not None]
    if not held:
        return []
    first, last = min(each.span.first for each in held), max(each.span.last for each in held)
    at = resolution(first, last, max(asked.most, 2), asked.now, asked.keep)
    found: list[CardCurve] = []
    for each in held:
        buckets = await _read(session, each, each.span, asked, at_most=max(asked.most, 2), like=(first, last))
        numbers = sorted({number for series in buckets.values() for number in series})
        for name in asked.names:
            series = buckets.get(_place(each, name), {})
            if series:
                found.append(_curve(each, name, [], [float(number * at.seconds) for number in numbers], [series.get(n) for n in numbers]))
    return found


async def by_step(session: AsyncSession, job_id: str, holdings: Sequence[CardHolding], asked: CardQuestion) -> list[CardCurve]:
    """The curves of every rank over its steps, in the buckets that its own metrics have."""
    found: list[CardCurve] = []
    for rank in asked.ranks:
        held = [each for each in holdings if each.rank == rank and each.card is not None]
        if not held:
            continue
        for clock in await clocks_of(session, job_id, rank, asked):
            for each in held:
                found += await _of_steps(session, each, clock, asked)
    return found


async def means_of_steps(
    session: AsyncSession, holdings: Sequence[CardHolding], steps: Sequence[int], times: Sequence[float], now: float, keep: KeepReadings
) -> list[dict[str, float]]:
    """For each of a rank's steps, in order of time, the mean of every metric of its card that was read; `times`: when the steps ended."""
    found: list[dict[str, float]] = [{} for _ in steps]
    asked = CardQuestion(tuple(CARD_METRICS), (), (None, None), MOST_BUCKETS, now, keep)
    for holding in holdings:
        mine = [at for at, time in enumerate(times) if holding.card is not None and holding.span.holds(time)]
        if not mine:
            continue
        ends = [times[at] for at in mine]
        edges = [began_at([steps[at] for at in mine], ends, 1), *ends]
        span = TimeSpan(edges[0], edges[-1])
        seconds = resolution(span.first, span.last, MOST_BUCKETS, now, keep).seconds
        buckets = await _read(session, holding, span, asked, at_most=MOST_BUCKETS, like=(span.first, span.last))
        for place, series in buckets.items():
            for at, each in zip(mine, within(series, seconds, edges), strict=True):
                if each is not None:
                    found[at][place.name] = in_unit(each.sum / each.count, CARD_METRICS[place.name].step)
    return found


async def clocks_of(session: AsyncSession, job_id: str, rank: int, asked: CardQuestion) -> list[Curve]:
    """One curve of each generation of a rank: the steps of its buckets, and when they ended."""
    known = await metric_rows.names(session, job_id)
    names = [name for name in _CLOCKS if name in known] or known[:1]
    metrics = await curves.job_metrics(session, job_id, wanted=names, ranks=[rank], steps=asked.steps, limit=asked.most, of_own_model=True)
    first: dict[int, Curve] = {}
    for curve in sorted(metrics.curves, key=lambda curve: names.index(curve.name)):
        first.setdefault(curve.generation, curve)
    return [first[generation] for generation in sorted(first)]


async def _of_steps(session: AsyncSession, holding: CardHolding, clock: Curve, asked: CardQuestion) -> list[CardCurve]:
    """The curves of those buckets of steps that ended while the rank held this card."""
    ends = [(step, time) for step, time in zip(clock.steps, clock.times, strict=True) if holding.span.holds(time)]
    if not ends:
        return []
    steps, times = [step for step, _ in ends], [time for _, time in ends]
    began = max(holding.span.first, began_at(steps, times, clock.bucket_steps))
    span = TimeSpan(began, times[-1])
    at = resolution(span.first, span.last, MOST_BUCKETS, asked.now, asked.keep)
    buckets = await _read(session, holding, span, asked, at_most=MOST_BUCKETS, like=(span.first, span.last))
    found: list[CardCurve] = []
    for name in asked.names:
        series = buckets.get(_place(holding, name), {})
        if series:
            values = within(series, at.seconds, [began, *times])
            found.append(_curve(holding, name, steps, times, values, generation=clock.generation))
    return found


def began_at(steps: Sequence[int], times: Sequence[float], bucket_steps: int) -> float:
    """When the first bucket of steps began, at the mean pace of all steps: nothing tells when its first step began."""
    pace = (times[-1] - times[0]) / max(steps[-1] - steps[0], 1)
    return times[0] - pace * (steps[0] % bucket_steps + 1)


def within(series: Mapping[int, ReadingBucket], seconds: int, edges: Sequence[float]) -> list[ReadingBucket | None]:
    """The readings between each two edges of time, from buckets of `seconds`; None: there are none. A bucket that lies across an edge counts on
    both of its sides."""
    numbers = sorted(series)
    found: list[ReadingBucket | None] = []
    for first, last in pairwise(edges):
        total: ReadingBucket | None = None
        for number in numbers[bisect_left(numbers, int(first // seconds)) :]:
            if number > last // seconds:
                break
            each = series[number]
            if total is None:
                total = ReadingBucket(each.count, each.sum, each.minimum, each.maximum)
            else:
                total.merge(each)
        found.append(total)
    return found


async def _read(
    session: AsyncSession, holding: CardHolding, span: TimeSpan, asked: CardQuestion, *, at_most: int, like: tuple[float, float]
) -> Buckets:
    places = {_place(holding, name) for name in asked.names}
    at = resolution(*like, at_most, asked.now, asked.keep)
    return await read_buckets(session, holding.node_id, span, at, places.__contains__)


def _place(holding: CardHolding, name: str) -> SeriesPlace:
    assert holding.card is not None, "a CPU slot has no card"
    return SeriesPlace(card(holding.card), name)


def _curve(
    holding: CardHolding,
    name: str,
    steps: list[int],
    times: list[float],
    values: Sequence[ReadingBucket | None],
    *,
    generation: int | None = None,
) -> CardCurve:
    assert holding.card is not None, "a CPU slot has no card"
    metric = CARD_METRICS[name]
    return CardCurve(
        rank=holding.rank,
        generation=holding.generation if generation is None else generation,
        node_id=holding.node_id,
        node_name=holding.node_name,
        card=holding.card,
        name=name,
        unit=metric.unit,
        steps=steps,
        times=times,
        mean=[None if each is None else in_unit(each.sum / each.count, metric.step) for each in values],
        minimum=[None if each is None else in_unit(each.minimum, metric.step) for each in values],
        maximum=[None if each is None else in_unit(each.maximum, metric.step) for each in values],
    )
