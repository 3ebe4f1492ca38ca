"""Rolls readings of nodes up, and deletes what is no longer kept (`cluster.history.node_readings` has the plan).

A refresh takes a node's readings beyond its mark, adds them to the rows of each level, and moves the mark in the same transaction: each reading
is in the roll-ups once, also one that arrives a day late. Readers add the readings beyond the mark themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from paceline.api.core.context import Services
from paceline.api.services.storage.keeping import DeletionPace
from paceline.cluster.history.node_readings import (
    EVICTABLE_READINGS,
    READING_LEVELS,
    READING_ROW_BYTES,
    KeepReadings,
    reading_kind,
    row_seconds,
)
from paceline.db.repositories import ingest, readings, storage
from paceline.db.repositories.readings import StoredReadings, StoredRollup
from paceline.monitoring.packed import Buckets, coarser, merge, pack_buckets, roll_up, unpack_buckets, unpack_record

#: Rows of a node that are rolled up together: some hours of a node that was cut off.
MOST_ROWS = 2_000
Key = tuple[int, int]  # seconds of a level, start of a row


async def roll_up_all(services: Services, pace: DeletionPace) -> bool:
    """Roll up the readings of every node. Returns whether the pace left time for all of them."""
    async with services.metrics.read() as session:
        nodes = await readings.nodes_with_readings(session)
        marks = await readings.marks_of(session, nodes)
    for node_id in nodes:
        while await roll_up_node(services, pace, node_id, marks):
            if pace.over:
                return False
    return True


async def roll_up_node(services: Services, pace: DeletionPace, node_id: str, marks: dict[str, int]) -> bool:
    """Roll up some readings of a node beyond its mark, and move `marks`. Returns whether there may be more."""
    before = marks[node_id]
    async with services.metrics.read() as session:
        rows = await readings.after(session, before, MOST_ROWS, node_id)
        if not rows:
            return False
        rolled = await asyncio.to_thread(roll_up_rows, rows)
        stored = await readings.rollups_at(session, node_id, rolled.keys())
    merged = await asyncio.to_thread(_merged, rolled, stored)
    stream = readings.rollup_stream(node_id)
    async with pace.turn(services) as session:
        await readings.lock(session)
        if (await ingest.marks(session, [stream])).get(stream, 0) != before:
            return False  # another refresh has been faster
        await readings.put_rollups(session, node_id, merged)
        await ingest.set_marks(session, {stream: rows[-1].seq})
        await storage.add(session, _growth(node_id, merged, stored), services.now())
    marks[node_id] = rows[-1].seq
    return len(rows) == MOST_ROWS


def roll_up_rows(rows: Sequence[StoredReadings]) -> dict[Key, Buckets]:
    """The rows of every level that these readings make, by key."""
    finest: Buckets = {}
    for row in rows:
        roll_up(unpack_record(row.data), READING_LEVELS[0], finest)
    found: dict[Key, Buckets] = {}
    for level in READING_LEVELS:
        for place, series in coarser(finest, level // READING_LEVELS[0]).items():
            for number, bucket in series.items():
                start = number * level // row_seconds(level) * row_seconds(level)
                found.setdefault((level, start), {}).setdefault(place, {})[number] = bucket
    return found


def _merged(rolled: Mapping[Key, Buckets], stored: Mapping[Key, bytes]) -> list[StoredRollup]:
    found: list[StoredRollup] = []
    for (level, start), buckets in rolled.items():
        whole = unpack_buckets(stored[level, start]) if (level, start) in stored else {}
        merge(whole, buckets)
        found.append(StoredRollup(level, start, pack_buckets(whole)))
    return found


def _growth(node_id: str, merged: Sequence[StoredRollup], stored: Mapping[Key, bytes]) -> dict[tuple[str, str], tuple[int, int]]:
    """(rows, bytes) that each level has more than before."""
    sizes: dict[tuple[str, str], tuple[int, int]] = {}
    for row in merged:
        old, key = stored.get((row.seconds, row.start)), (node_id, reading_kind(row.seconds))
        rows, size = sizes.get(key, (0, 0))
        more = len(row.data) + READING_ROW_BYTES if old is None else len(row.data) - len(old)
        sizes[key] = (rows + (old is None), size + more)
    return sizes


# --- deleting


async def drop_old(services: Services, pace: DeletionPace, now: datetime, keep: KeepReadings) -> None:
    """Delete the readings of each level beyond their age."""
    for seconds in (1, *READING_LEVELS):
        before = (now - keep.age_of(seconds)).timestamp()
        while not pace.over and await _drop(services, pace, seconds, before):
            continue


async def evict(services: Services, pace: DeletionPace, now: datetime, recent: timedelta, excess: int) -> int:
    """Delete readings that make up `excess` bytes, the oldest seconds first, and nothing of the `recent` time. Returns the bytes."""
    gone = 0
    for seconds in EVICTABLE_READINGS:
        while gone < excess and not pace.over:
            size = await _drop(services, pace, seconds, (now - recent).timestamp())
            if not size:
                break
            gone += size
    return gone


async def _drop(services: Services, pace: DeletionPace, seconds: int, before: float) -> int:
    async with pace.turn(services) as session:
        if seconds == 1:
            return await readings.drop_raw(session, before, pace.rows)
        # a row is known to be old once its last bucket is
        return await readings.drop_rollups(session, seconds, int(before) - row_seconds(seconds), pace.rows)
