"""Rolls readings of nodes up, and deletes what is no longer kept (`cluster.history.node_readings` has the plan).

A refresh takes a node's readings beyond its mark, adds them to the rows of each level, and moves the mark in the same transaction: each reading
is in the roll-ups once, also one that arrives a day late. Readers add the readings beyond the mark themselves. Rows that cannot be read are told of and
passed over: they age with the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.core.troubles import Subject
from paceline.api.services.lifecycle import events
from paceline.api.services.lifecycle.isolation import PhaseTurns
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
from paceline.monitoring.packed import Buckets, buckets_of, coarser, merge, pack_buckets, roll_up, values_of

logger = logging.getLogger(__name__)
#: Rows of a node that are rolled up together: some hours of a node that was cut off.
MOST_ROWS = 2_000
Key = tuple[int, int]  # seconds of a level, start of a row


def turns_at(services: Services, now: datetime) -> PhaseTurns:
    """The turns of nodes in which their readings are rolled up."""
    return PhaseTurns(services, "roll its readings up", now)


async def roll_up_all(services: Services, pace: DeletionPace, now: datetime, among: Collection[str] | None = None) -> bool:
    """Roll up the readings of every node, or of those `among` these. A node that raises holds up no other. Returns whether the pace left time
    for all of them."""
    turns = turns_at(services, now)
    async with services.metrics.read() as session:
        nodes = await readings.nodes_with_readings(session)
        marks = await readings.marks_of(session, nodes)
    services.troubles.forget_all_but(turns.task, nodes)
    for node_id in nodes if among is None else [each for each in nodes if each in among]:
        if await turns.take(Subject("node", node_id), partial(_roll_up_whole, services, pace, node_id, marks)) is False:
            return False
    return True


async def _roll_up_whole(services: Services, pace: DeletionPace, node_id: str, marks: dict[str, int]) -> bool:
    """Roll up all readings of a node. Returns whether the pace left time for it."""
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
        rolled, damaged = await asyncio.to_thread(roll_up_rows, rows)
        stored = await readings.rollups_at(session, node_id, rolled.keys())
    merged, lost = await asyncio.to_thread(_merged, rolled, stored)
    stream = readings.rollup_stream(node_id)
    async with pace.turn(services) as session:
        await readings.lock(session)
        if (await ingest.marks(session, [stream])).get(stream, 0) != before:
            return False  # another refresh has been faster
        await readings.put_rollups(session, node_id, merged)
        await ingest.set_marks(session, {stream: rows[-1].seq})
        await storage.add(session, _growth(node_id, merged, stored), services.now())
    marks[node_id] = rows[-1].seq
    if damaged or lost:
        await _tell_of_damage(services, node_id, damaged, lost)
    return len(rows) == MOST_ROWS


async def _tell_of_damage(services: Services, node_id: str, damaged: Sequence[StoredReadings], lost: Sequence[Key]) -> None:
    """Record that rows of readings were passed over, and that rows of roll-ups were begun anew."""
    kinds = {"of seconds": len(damaged), "of averages": len(lost)}
    which = " and ".join(f"{count} {kind}" for kind, count in kinds.items() if count)
    times = [time for row in damaged for time in (row.first_time, row.last_time)] + [float(start) for _, start in lost]
    first, last = min(times), max(times)
    logger.error("rows of readings of node %s cannot be read: %s, of %.0f to %.0f", node_id, which, first, last)
    async with services.write() as session:
        await events.record(
            session,
            type="node.readings_unreadable",
            actor=SYSTEM,
            cause="damaged_rows",
            message=f"rows of its readings cannot be read, and are left out of its curves: {which}; those before and after them are there",
            node_id=node_id,
            data={"rows": len(damaged), "rollups": len(lost), "first_time": first, "last_time": last},
        )


def roll_up_rows(rows: Sequence[StoredReadings]) -> tuple[dict[Key, Buckets], list[StoredReadings]]:
    """The rows of every level that these readings make, by key, and the rows among them that cannot be read."""
    finest: Buckets = {}
    damaged: list[StoredReadings] = []
    for row in rows:
        values = values_of(row.data)
        if values is None:
            damaged.append(row)
        else:
            roll_up(values, READING_LEVELS[0], finest)
    found: dict[Key, Buckets] = {}
    for level in READING_LEVELS:
        for place, series in coarser(finest, level // READING_LEVELS[0]).items():
            for number, bucket in series.items():
                start = number * level // row_seconds(level) * row_seconds(level)
                found.setdefault((level, start), {}).setdefault(place, {})[number] = bucket
    return found, damaged


def _merged(rolled: Mapping[Key, Buckets], stored: Mapping[Key, bytes]) -> tuple[list[StoredRollup], list[Key]]:
    """The rows to store, and the keys of stored ones that cannot be read: there, a row begins anew."""
    found: list[StoredRollup] = []
    lost: list[Key] = []
    for key, buckets in rolled.items():
        whole = buckets_of(stored[key]) if key in stored else {}
        if whole is None:
            lost.append(key)
            whole = {}
        merge(whole, buckets)
        found.append(StoredRollup(*key, pack_buckets(whole)))
    return found, lost


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
