"""Counts and sums of one metric while cards were held: what `node_metrics.read_buckets` adds up to, without a bucket for each moment.

A row is added as a whole where all of it lies in the window. A row that cannot be read is a gap, as in curves.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.services.nodes.node_metrics import MOST_TAIL, TimeSpan
from paceline.cluster.history.node_readings import Resolution, row_seconds
from paceline.db.repositories import readings
from paceline.monitoring.packed import SeriesColumns, bucket_columns, record_columns


class HeldSubject(NamedTuple):
    """A subject of a node, such as a card, and when it was held."""

    subject: str
    span: TimeSpan


@dataclass(slots=True)
class ReadingTotal:
    """The readings of one series: how many, and their sum in steps."""

    count: int = 0
    sum: int = 0


class _Window(NamedTuple):
    """The times, or numbers of buckets, from `first` up to `end`, which is not in it, and where their readings are added."""

    first: float
    end: float
    total: ReadingTotal


_Windows = dict[str, list[_Window]]
_Reader = Callable[[bytes, str, _Windows], tuple[Sequence[float], SeriesColumns]]


async def read_totals(
    session: AsyncSession, node_id: str, at: Resolution, name: str, held: Sequence[HeldSubject], span: TimeSpan
) -> list[ReadingTotal]:
    """The readings of one metric while each subject was held, within `span` and to whole buckets of `at.seconds`. Like `read_buckets`, edge buckets of a
    roll-up may hold readings from outside of it."""
    totals = [ReadingTotal() for _ in held]
    times = _windows(held, totals, at.seconds, span.first, math.nextafter(span.last, math.inf))
    if at.level == 1:
        rows = await readings.between(session, node_id, span.first, span.last)
        await asyncio.to_thread(_add_rows, record_columns, [row.data for row in rows], name, times)
        return totals
    start = int(span.first) // row_seconds(at.level) * row_seconds(at.level)
    rollups = await readings.rollups_between(session, node_id, at.level, start, int(span.last))
    made = (await readings.marks_of(session, [node_id]))[node_id]
    tail = await readings.after(session, made, MOST_TAIL, node_id)
    newer = [row.data for row in tail if row.last_time >= span.first and row.first_time <= span.last]
    numbers = _windows(held, totals, at.seconds, span.first // at.level, span.last // at.level + 1, at.level)
    await asyncio.to_thread(_add_rows, bucket_columns, [row.data for row in rollups], name, numbers)
    await asyncio.to_thread(_add_rows, record_columns, newer, name, times)
    return totals


def _windows(
    held: Sequence[HeldSubject], totals: Sequence[ReadingTotal], seconds: int, first: float, end: float, unit: int = 1
) -> _Windows:
    """The windows by subject, each to whole buckets of `seconds`, in units of so many seconds; none reaches beyond `first` and `end`."""
    windows: _Windows = {}
    for each, total in zip(held, totals, strict=True):
        begins, ends = each.span.first // seconds * seconds // unit, (each.span.last // seconds + 1) * seconds // unit
        windows.setdefault(each.subject, []).append(_Window(max(first, begins), min(end, ends), total))
    return windows


def _add_rows(read: _Reader, rows: Sequence[bytes], name: str, windows: _Windows) -> None:
    for data in rows:
        try:
            axis, columns = read(data, name, windows)
        except ValueError:
            continue
        for subject, (counts, sums) in columns.items():
            _add(axis, counts, sums, windows[subject])


def _add(axis: Sequence[float], counts: Sequence[int], sums: Sequence[int], windows: Sequence[_Window]) -> None:
    if not axis:
        return
    lowest, highest = min(axis), max(axis)
    for first, end, total in windows:
        if first <= lowest and highest < end:
            total.count += sum(counts)
            total.sum += sum(sums)
        elif lowest < end and first <= highest:
            inside = [number for number, each in enumerate(axis) if first <= each < end]
            total.count += sum(counts[number] for number in inside)
            total.sum += sum(sums[number] for number in inside)
