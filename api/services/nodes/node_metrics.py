"""The past of a node and its cards in at most so many buckets: single seconds where they are kept and fit, else the finest roll-up.

Roll-ups are made every few minutes; what has come since is added here, in the same read. A row that cannot be read is a gap: whoever rolls readings
up tells of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.schemas.readings import NodeMetrics, ReadingCurve
from paceline.cluster.history.node_readings import READING_LEVELS, KeepReadings, Resolution, resolution, row_seconds
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import readings
from paceline.db.repositories.readings import StoredReadings, StoredRollup
from paceline.monitoring.packed import Buckets, SeriesPlace, add, buckets_of, coarser, merge, values_of
from paceline.monitoring.readings import GPU_PREFIX, NETWORK_PREFIX, card, metrics_of

#: Rows beyond the roll-ups that one read adds; a backlog of hours is rolled up within minutes.
MOST_TAIL = 5_000
Wanted = Callable[[SeriesPlace], bool]


@dataclass(frozen=True)
class TimeSpan:
    """Times from `first` to `last`, seconds since the epoch."""

    first: float
    last: float

    def holds(self, time: float) -> bool:
        return self.first <= time <= self.last


async def node_metrics(
    session: AsyncSession,
    node: NodeRow,
    span: TimeSpan,
    *,
    names: Collection[str] | None,
    cards: Collection[int] | None,
    most: int,
    now: float,
    keep: KeepReadings,
) -> NodeMetrics:
    """The curves of a node. `names` None: all metrics. `cards` given: those cards alone; None: the node, its interfaces and every card."""
    as_of = await readings.newest_seq(session)  # before the rest: a reading seen twice is harmless, one missed is not
    reach = await readings.reach(session, node.id, coarsest := READING_LEVELS[-1], row_seconds(coarsest))
    subjects = None if cards is None else {card(index) for index in cards}
    at = resolution(span.first, span.last, most, now, keep)
    found = await read_buckets(
        session,
        node.id,
        span,
        at,
        lambda place: (
            (names is None or place.name in names)
            and (subjects is None or place.subject in subjects)
            and place.name in metrics_of(place.subject)
        ),
    )
    return NodeMetrics(
        node_id=node.id,
        node_name=node.name,
        first_time=reach[0] if reach else None,
        last_time=reach[1] if reach else None,
        bucket_seconds=at.seconds,
        curves=[_curve(place, found, at.seconds) for place in sorted(found, key=_order)],
        as_of_seq=as_of,
    )


async def read_buckets(session: AsyncSession, node_id: str, span: TimeSpan, at: Resolution, wanted: Wanted) -> Buckets:
    """The readings of a node within a span, of the wanted places, in buckets of `at.seconds`. Edge buckets of a roll-up may hold readings
    from outside of the span."""
    if at.level == 1:
        rows = await readings.between(session, node_id, span.first, span.last)
        return await asyncio.to_thread(_of_seconds, rows, span, at.seconds, wanted)
    start = int(span.first) // row_seconds(at.level) * row_seconds(at.level)
    rollups = await readings.rollups_between(session, node_id, at.level, start, int(span.last))
    made = (await readings.marks_of(session, [node_id]))[node_id]
    tail = await readings.after(session, made, MOST_TAIL, node_id)
    return await asyncio.to_thread(_of_rollups, rollups, tail, span, at, wanted)


def _of_seconds(rows: Sequence[StoredReadings], span: TimeSpan, seconds: int, wanted: Wanted) -> Buckets:
    found: Buckets = {}
    for row in rows:
        for time, place, value in values_of(row.data, wanted) or ():
            if span.holds(time):
                add(found, place, int(time // seconds), value)
    return found


def _of_rollups(rollups: Sequence[StoredRollup], tail: Sequence[StoredReadings], span: TimeSpan, at: Resolution, wanted: Wanted) -> Buckets:
    stored: Buckets = {}
    first, last = int(span.first // at.level), int(span.last // at.level)
    for row in rollups:
        for place, series in (buckets_of(row.data, wanted) or {}).items():
            merge(stored, {place: {number: each for number, each in series.items() if first <= number <= last}})
    newer = [row for row in tail if row.last_time >= span.first and row.first_time <= span.last]
    merge(stored, _of_seconds(newer, span, at.level, wanted))
    return coarser(stored, at.seconds // at.level)


def _order(place: SeriesPlace) -> tuple[str, int, str, str]:
    """The node first, then its cards by index, then its interfaces."""
    kind, _, rest = place.subject.partition(":")
    return ({"host": "0", "gpu": "1"}.get(kind, "2"), int(rest) if rest.isdecimal() else 0, rest, place.name)


def _curve(place: SeriesPlace, found: Buckets, seconds: int) -> ReadingCurve:
    metric = metrics_of(place.subject)[place.name]
    series = sorted(found[place].items(), key=lambda item: item[0])
    return ReadingCurve(
        card=int(place.subject.removeprefix(GPU_PREFIX)) if place.subject.startswith(GPU_PREFIX) else None,
        interface=place.subject.removeprefix(NETWORK_PREFIX) if place.subject.startswith(NETWORK_PREFIX) else None,
        name=place.name,
        unit=metric.unit,
        times=[float(number * seconds) for number, _ in series],
        mean=[in_unit(each.sum / each.count, metric.step) for _, each in series],
        minimum=[in_unit(each.minimum, metric.step) for _, each in series],
        maximum=[in_unit(each.maximum, metric.step) for _, each in series],
    )


def in_unit(value: float, step: float) -> float:
    """A value in its metric's unit, from a number of steps."""
    return round(value * step, 3)
