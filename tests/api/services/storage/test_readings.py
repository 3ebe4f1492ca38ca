"""Roll-ups of readings hold each reading once, whenever and in whatever order it comes; what is too old or too much goes."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from sqlalchemy import select, update

from paceline.api.core.context import Services
from paceline.api.services.ingest.readings import ReadingsWriter
from paceline.api.services.storage import readings
from paceline.api.services.storage.keeping import DeletionPace
from paceline.cluster.history.node_readings import READING_LEVELS, READING_ROW_BYTES, KeepReadings
from paceline.db.models.events import EventRow
from paceline.db.models.readings import NodeReadingRollupRow, NodeReadingRow
from paceline.db.repositories import readings as reading_rows
from paceline.db.repositories import storage
from paceline.monitoring.packed import Buckets, SeriesPlace, unpack_buckets
from paceline.monitoring.readings import NodeReadings, ReadingRecord
from tests.api.conftest import count

NOW = datetime.now(UTC)
START = NOW.timestamp() // 36_000 * 36_000 - 36_000
POWER = SeriesPlace("gpu:0", "power_watts")
KEEP = KeepReadings(raw=timedelta(hours=3), fine=timedelta(days=3), coarse=timedelta(days=365))


async def store(services: Services, first: int, seconds: int, *, node_id: str = "n", start: float = START) -> None:
    """Store a reading of each of these seconds: the power is the number of the second. Each call is a spool of its own."""
    writer = ReadingsWriter(services)
    records = [
        ReadingRecord(
            seq=number, times=[start + second], columns={POWER.subject: {POWER.name: [float(second)]}, "host": {"load_1m": [None]}}
        )
        for number, second in enumerate(range(first, first + seconds), start=1)
    ]
    async with writer.running():
        await writer.store(node_id, NodeReadings(spool=int(start) + first, records=records))


async def rolled(services: Services, level: int, node_id: str = "n") -> Buckets:
    found: Buckets = {}
    async with services.metrics.read() as session:
        query = select(NodeReadingRollupRow.data).where(NodeReadingRollupRow.seconds == level, NodeReadingRollupRow.node_id == node_id)
        for data in await session.scalars(query):
            for place, series in unpack_buckets(data).items():
                found.setdefault(place, {}).update(series)
    return found


async def refresh(services: Services) -> bool:
    return await readings.roll_up_all(services, DeletionPace.of(30.0), NOW)


async def test_each_reading_is_in_every_level_once_also_when_it_comes_late(services: Services) -> None:
    await store(services, 300, 500)
    assert await refresh(services)
    await store(services, 0, 300)  # what the node had kept while the coordinator was away
    assert await refresh(services)
    assert await refresh(services)  # nothing new: nothing changes
    for level in READING_LEVELS:
        series = (await rolled(services, level))[POWER]
        assert sum(bucket.count for bucket in series.values()) == 800
        assert sum(bucket.sum for bucket in series.values()) == 10 * sum(range(800))
        first = series[int(START) // level]
        assert (first.minimum, first.maximum) == (0, 10 * (min(level, 800) - 1))


async def test_a_node_of_many_rows_is_rolled_up_in_parts(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "MOST_ROWS", 30)
    await store(services, 0, 100)
    await store(services, 0, 5, node_id="other")
    assert await refresh(services)
    assert sum(bucket.count for bucket in (await rolled(services, 600))[POWER].values()) == 100
    assert sum(bucket.count for bucket in (await rolled(services, 10, "other"))[POWER].values()) == 5


async def test_the_count_of_stored_bytes_follows(services: Services) -> None:
    await store(services, 0, 50)
    await refresh(services)
    await store(services, 50, 10)
    await refresh(services)
    async with services.metrics.read() as session:
        kinds = await storage.by_kind(session)
        documents = list(await session.scalars(select(NodeReadingRollupRow.data).where(NodeReadingRollupRow.seconds == 60)))
    assert kinds["readings"][0] == 60
    assert kinds["readings_60"] == (1, len(documents[0]) + READING_ROW_BYTES)


async def test_seconds_go_with_their_age_and_never_before_they_are_rolled_up(services: Services) -> None:
    old, recent = NOW.timestamp() - 4 * 3_600, NOW.timestamp() - 600
    await store(services, 0, 20, start=old)
    await readings.drop_old(services, DeletionPace.of(30.0), NOW, KEEP)
    assert await count(services, NodeReadingRow) == 20
    await store(services, 0, 5, start=recent)
    await refresh(services)
    await readings.drop_old(services, DeletionPace.of(30.0), NOW, KEEP)
    assert await count(services, NodeReadingRow) == 5
    assert sum(bucket.count for bucket in (await rolled(services, 10))[POWER].values()) == 25
    await readings.drop_old(services, DeletionPace.of(30.0), NOW + timedelta(days=4), KEEP)
    assert await rolled(services, 10) == {}
    assert sum(bucket.count for bucket in (await rolled(services, 60))[POWER].values()) == 25
    async with services.metrics.read() as session:
        assert (await storage.by_kind(session))["readings_10"] == (0, 0)


async def test_when_there_is_too_much_old_seconds_go_first_and_recent_ones_stay(services: Services) -> None:
    await store(services, 0, 30, start=NOW.timestamp() - 7_200)
    await store(services, 0, 30, start=NOW.timestamp() - 60)
    await refresh(services)
    gone = await readings.evict(services, DeletionPace.of(30.0), NOW, timedelta(hours=1), 1)
    assert gone > 0
    assert await count(services, NodeReadingRow) == 30
    async with services.metrics.read() as session:
        assert {row.node_id for row in await reading_rows.between(session, "n", NOW.timestamp() - 90, NOW.timestamp())} == {"n"}


async def told(services: Services) -> list[dict[str, object]]:
    async with services.control.read() as session:
        return list(await session.scalars(select(EventRow.data).where(EventRow.type == "node.readings_unreadable").order_by(EventRow.seq)))


@pytest.mark.parametrize(
    "damage",
    [b"", b"no zlib", zlib.compress(b"no document"), zlib.compress(msgspec.msgpack.encode([1, [1], {"load_1m": {"host": [[1]]}}]))],
)
async def test_rows_that_cannot_be_read_are_told_of_and_the_rest_of_the_node_rolls_up_and_ages(services: Services, damage: bytes) -> None:
    """The node kept all its seconds for good: none were rolled up after the first bad row."""
    start = NOW.timestamp() - 4 * 3_600
    await store(services, 0, 20, start=start)
    async with services.metrics.write() as session:
        await session.execute(update(NodeReadingRow).where(NodeReadingRow.first_time.between(start + 4.5, start + 7.5)).values(data=damage))
    assert await refresh(services)
    assert sum(bucket.sum for bucket in (await rolled(services, 600))[POWER].values()) == 10 * (sum(range(20)) - 5 - 6 - 7)
    assert [(data["rows"], data["rollups"]) for data in await told(services)] == [(3, 0)]
    assert await refresh(services)
    assert len(await told(services)) == 1
    assert services.troubles.held_up("node") == 0
    await readings.drop_old(services, DeletionPace.of(30.0), NOW, KEEP)
    assert await count(services, NodeReadingRow) == 0


async def test_a_row_of_averages_that_cannot_be_read_begins_anew(services: Services) -> None:
    await store(services, 0, 20)
    await refresh(services)
    async with services.metrics.write() as session:
        await session.execute(update(NodeReadingRollupRow).where(NodeReadingRollupRow.seconds == 60).values(data=b"no zlib"))
    await store(services, 20, 10)
    assert await refresh(services)
    assert [sum(bucket.count for bucket in (await rolled(services, level))[POWER].values()) for level in (10, 60, 600)] == [30, 10, 30]
    assert [(data["rows"], data["rollups"]) for data in await told(services)] == [(0, 1)]
