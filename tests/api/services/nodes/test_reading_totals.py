"""Totals of readings while cards were held: those of the curves' buckets, without a bucket for each moment."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

import pytest

from paceline.api.core.context import Services
from paceline.api.services.nodes import reading_totals
from paceline.api.services.nodes.node_metrics import TimeSpan, read_buckets
from paceline.api.services.nodes.reading_totals import HeldSubject, ReadingTotal, read_totals
from paceline.api.services.storage import readings
from paceline.api.services.storage.keeping import DeletionPace
from paceline.cluster.history.node_readings import Resolution
from paceline.db.models.readings import NodeReadingRow
from paceline.monitoring.packed import ReadingBucket, SeriesPlace, bucket_columns, pack_buckets
from tests import factories
from tests.readings import store

POWER = "power_watts"
SECONDS = 900


async def from_buckets(session: Any, node_id: str, at: Resolution, held: Sequence[HeldSubject], span: TimeSpan) -> list[ReadingTotal]:
    """The same from the buckets of curves, one by one."""
    buckets = await read_buckets(session, node_id, span, at, lambda place: place.name == POWER)
    totals = []
    for each in held:
        series = buckets.get(SeriesPlace(each.subject, POWER), {})
        inside = [found for number, found in series.items() if each.span.first // at.seconds <= number <= each.span.last // at.seconds]
        totals.append(ReadingTotal(sum(found.count for found in inside), sum(found.sum for found in inside)))
    return totals


def columns(rng: random.Random) -> Mapping[str, Mapping[str, list[float]]]:
    return {
        f"gpu:{card}": {name: [float(rng.randrange(50, 700)) for _ in range(SECONDS)] for name in (POWER, "utilization_percent")}
        for card in range(3)
    }


@pytest.fixture
async def node_id(services: Services) -> str:
    """A node with a quarter of an hour of readings, most of them rolled up, and one row that cannot be read."""
    rng, now = random.Random(7), services.now().timestamp()
    async with services.write() as session:
        node, _ = await factories.create_node(session, device="cuda")
    await store(services, node.id, now - 2 * SECONDS, columns(rng))
    await readings.roll_up_all(services, DeletionPace.of(30.0), services.now())
    await store(services, node.id, now - SECONDS + 0.5, columns(rng))
    async with services.metrics.write() as points:
        points.add(NodeReadingRow(node_id=node.id, first_time=now - 100, last_time=now - 96, data=b"damaged"))
    return str(node.id)


@pytest.mark.parametrize("at", [Resolution(1, 1), Resolution(1, 3), Resolution(10, 10), Resolution(10, 40), Resolution(60, 60)], ids=str)
async def test_they_are_those_of_the_buckets(services: Services, node_id: str, at: Resolution) -> None:
    rng, now = random.Random(at.seconds), services.now().timestamp()
    for _ in range(10):
        edges = [sorted(now - rng.uniform(-50, 2 * SECONDS + 50) for _ in range(2)) for _ in range(5)]
        held = [HeldSubject(f"gpu:{rng.randrange(4)}", TimeSpan(*each)) for each in edges]
        span = TimeSpan(min(each.span.first for each in held), max(each.span.last for each in held))
        async with services.metrics.read() as points:
            found = await read_totals(points, node_id, at, POWER, held, span)
            assert found == await from_buckets(points, node_id, at, held, span)
        assert any(total.count for total in found)


def calls_for(data: bytes, last: int) -> int:
    """The calls of Python functions that adding a row takes."""
    count, total = 0, ReadingTotal()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    windows = {"gpu:0": [reading_totals._Window(0, last + 1, total)]}
    gc.disable()  # what other tests left behind may call functions as it is collected
    sys.setprofile(note)
    try:
        reading_totals._add_rows(bucket_columns, [data], POWER, windows)
    finally:
        sys.setprofile(None)
        gc.enable()
    assert (total.count, total.sum) == (10 * (last + 1), 70 * (last + 1))
    return count


def test_a_row_takes_as_many_calls_whatever_it_holds() -> None:
    """It took five for each bucket of each card: the usage of a job of 128 ranks took seconds."""
    few, many = (pack_buckets({SeriesPlace("gpu:0", POWER): {n: ReadingBucket(10, 70, 5, 9) for n in range(count)}}) for count in (2, 60))
    assert calls_for(few, 1) == calls_for(many, 59)
