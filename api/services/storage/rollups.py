"""A *refresh* makes roll-ups behind the points, many points of a rank at a time: a bucket is then written once instead of for each of its
points. Readers add the points that it has not got to (`db/repositories/rollups.py`), so no reader waits for one, and it may stop anywhere.

Points are looked through in windows, in the order of arrival. A transaction that puts points into the roll-ups of a rank moves the rank's
mark over them; the last one of a window moves the mark of every rank. A transaction that finds other marks than the window began with has
met another refresh, and ends this one.

A job whose points cannot be rolled up holds up no other: those of the window are passed over, which is told. To wait for them would mean to
read all points since then again and again, of every job.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.troubles import Subject
from paceline.api.services.lifecycle.isolation import PhaseTurns
from paceline.api.services.storage.keeping import DeletionPace
from paceline.cluster.history.storage import BUCKET_BYTES, curve_kind
from paceline.db.repositories import rollups, storage
from paceline.db.repositories.ingest import Row
from paceline.db.repositories.metric_columns import RecordColumns
from paceline.db.repositories.rollups import EVERY_RANK, Marks, Rank, TailRecord
from paceline.monitoring.rollup import Bucket, all_levels

#: Points of a window, and characters of their values; it ends behind the chunk that reaches either.
WINDOW_RECORDS, WINDOW_CHARACTERS = 10_000, 8 << 20
CHUNK = 1_000
#: The most characters of a slice's values, unless one point alone has more.
SLICE_CHARACTERS = 64 << 10

Key = tuple[str, str, int, int, int, int]  # job_id, name, rank, level, bucket, generation


@dataclass(frozen=True)
class PointSlice:
    """Points of one rank in the order of arrival, the first of them behind the mark `after`."""

    rank: Rank
    after: int
    records: Sequence[RecordColumns]

    @property
    def last(self) -> int:
        return self.records[-1].seq


@dataclass(frozen=True)
class RollupWindow:
    made: Marks
    last: int
    slices: Sequence[PointSlice]


async def refresh(services: Services, pace: DeletionPace, now: datetime) -> bool:
    """Make the roll-ups of all points that are stored now. False: the pace's time was over before, or another refresh is under way."""
    turns = PhaseTurns(services, "put its points into its curves", now, "its curves lack those points", passes_over=True)
    await turns.forget_ended_jobs()
    async with services.metrics.read() as session:
        newest = await rollups.newest_seq(session)
    while not pace.over:
        window = await _read_window(services)
        if window.last > window.made.every and not await WindowStore(turns, pace, window).store():
            return False
        if window.last >= newest:
            return True
    return False


async def _read_window(services: Services) -> RollupWindow:
    found: list[TailRecord] = []
    characters, more = 0, True
    async with services.metrics.read() as session:
        made = await rollups.marks(session)
        last = made.every
        while more and len(found) < WINDOW_RECORDS and characters < WINDOW_CHARACTERS:
            chunk = await rollups.tail_of_all(session, last, CHUNK)
            found += chunk
            characters += sum(len(each.record.values) for each in chunk)
            last = chunk[-1].record.seq if chunk else last
            more = len(chunk) == CHUNK
    return RollupWindow(made, last, slices(found, made))


def slices(tail: Sequence[TailRecord], made: Marks) -> list[PointSlice]:
    """The points beyond the marks, rank by rank, in pieces of about SLICE_CHARACTERS."""
    by_rank: defaultdict[Rank, list[RecordColumns]] = defaultdict(list)
    for job_id, record in tail:
        if record.seq > made.of((job_id, record.rank)):
            by_rank[job_id, record.rank].append(record)
    found: list[PointSlice] = []
    for rank, records in by_rank.items():
        after, size, piece = made.of(rank), 0, list[RecordColumns]()
        for record in records:
            if piece and size + len(record.values) > SLICE_CHARACTERS:
                found.append(PointSlice(rank, after, piece))
                after, size, piece = piece[-1].seq, 0, []
            piece.append(record)
            size += len(record.values)
        found.append(PointSlice(rank, after, piece))
    return found


@dataclass
class WindowStore:
    """Stores the roll-ups of one window: those of all jobs together, or job by job where that raises."""

    turns: PhaseTurns
    pace: DeletionPace
    window: RollupWindow
    _met_another: bool = False

    async def store(self) -> bool:
        """Store slice by slice, some in each transaction. Returns False where another refresh has moved the marks."""
        by_job: defaultdict[str, list[PointSlice]] = defaultdict(list)
        for each in self.window.slices:
            by_job[each.rank[0]].append(each)
        await self.turns.take_together(list(by_job), self._subject, partial(self._store_jobs, by_job), at_once=max(1, len(by_job)))
        if not self._met_another:
            async with self.pace.turn(self.turns.services) as session:
                await self._lock(session)
                if not self._met_another:
                    await rollups.move_marks(session, {EVERY_RANK: self.window.last})
        return not self._met_another

    def _subject(self, job_id: str) -> Subject:
        """The job. What failed in another window says nothing of this one, so that each is tried."""
        return Subject("job", job_id, self.window.last)

    async def _store_jobs(self, by_job: Mapping[str, Sequence[PointSlice]], job_ids: Sequence[str]) -> int:
        """Store what is not stored yet of these jobs: a turn that all of them shared may have come some way. Returns how many slices."""
        async with self.turns.services.metrics.read() as session:
            marks = await rollups.marks(session, job_ids)
        waiting = deque(each for job_id in job_ids for each in by_job[job_id] if each.last > marks.of(each.rank))
        count = len(waiting)
        while waiting and not self._met_another:
            taken, found = await asyncio.to_thread(_take, waiting, self.pace.rows)
            async with self.pace.turn(self.turns.services) as session:
                await self._lock(session, taken)
                if not self._met_another:
                    await _add(session, found, self.turns.now)
                    await rollups.move_marks(session, {each.rank: each.last for each in taken})
        return count

    async def _lock(self, session: AsyncSession, taken: Sequence[PointSlice] = ()) -> None:
        """Take the lock under which marks move, and see whether another refresh has moved them."""
        await rollups.lock(session)
        now = await rollups.marks(session, {job_id for job_id, _ in (each.rank for each in taken)})
        self._met_another = self._met_another or not is_next(taken, self.window.made, now)


def _take(waiting: deque[PointSlice], most: int) -> tuple[list[PointSlice], dict[Key, Bucket]]:
    """Slices off the front that make about `most` buckets, and those buckets."""
    taken: list[PointSlice] = []
    found: dict[Key, Bucket] = {}
    while waiting and len(found) < most:
        taken.append(waiting.popleft())
        roll_up(taken[-1], found)
    return taken, found


def roll_up(piece: PointSlice, found: dict[Key, Bucket]) -> None:
    """Put the points of a slice into the buckets of every level, beside their stored values."""
    job_id, rank = piece.rank
    series: defaultdict[tuple[str, int], list[tuple[int, float, float]]] = defaultdict(list)
    for record in piece.records:
        for name, value in rollups.read_values(record).items():
            series[name, record.generation].append((record.step, record.time, value))
    for (name, generation), points in series.items():
        for level, buckets in all_levels(points).items():
            for number, bucket in buckets.items():
                known = found.setdefault((job_id, name, rank, level, number, generation), bucket)
                if known is not bucket:
                    known.merge(bucket)


def is_next(taken: Sequence[PointSlice], before: Marks, now: Marks) -> bool:
    """Whether each of these slices begins where its rank's mark is now."""
    reached = dict(now.ranks)
    for each in taken:
        if max(now.every, reached.get(each.rank, 0)) != each.after:
            return False
        reached[each.rank] = each.last
    return now.every == before.every


async def _add(session: AsyncSession, found: Mapping[Key, Bucket], now: datetime) -> None:
    if not found:
        return
    series: defaultdict[str, tuple[set[str], set[int]]] = defaultdict(lambda: (set(), set()))
    for job_id, name, rank, *_ in found:
        series[job_id][0].add(name)
        series[job_id][1].add(rank)
    stored: dict[tuple[str, str, int, int], int] = {}
    for job_id, (names, ranks) in series.items():
        highest = await rollups.newest_steps(session, job_id, names, ranks)
        stored |= {(job_id, *place): step for place, step in highest.items()}
    await rollups.merge(session, [_row(key, bucket) for key, bucket in found.items()])
    await storage.add(session, new_sizes(found, stored), now)


def new_sizes(found: Mapping[Key, Bucket], stored: Mapping[tuple[str, str, int, int], int]) -> dict[tuple[str, str], tuple[int, int]]:
    """(rows, bytes) by (job, kind) of the buckets that are new: those beyond the highest step that is `stored` of their job, name,
    rank and generation. A bucket below that is taken to be there."""
    rows: defaultdict[tuple[str, str], int] = defaultdict(int)
    for job_id, name, rank, level, number, generation in found:
        step = stored.get((job_id, name, rank, generation))
        rows[job_id, curve_kind(level)] += step is None or number > step // level
    return {key: (count, count * BUCKET_BYTES) for key, count in rows.items()}


def _row(key: Key, bucket: Bucket) -> Row:
    extremes = (bucket.minimum, bucket.maximum)
    return (*key, bucket.count, bucket.nan_count, *extremes, bucket.sum, bucket.last, bucket.last_step, bucket.last_time)
