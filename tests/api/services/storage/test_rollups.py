"""Roll-ups that are made behind the points, and read beside those that they lack: always those of all points."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.loops.rollups import LONGEST_WAIT, RollupKeeper
from paceline.api.services.ingest.writer import MetricsWriter
from paceline.api.services.storage import rollups
from paceline.api.services.storage.keeping import DeletionPace
from paceline.api.services.storage.rollups import PointSlice
from paceline.cluster.history.storage import StorageKind
from paceline.cluster.states import JobState
from paceline.db.base import new_id
from paceline.db.models.events import EventRow
from paceline.db.models.jobs import JobRow
from paceline.db.models.metrics import MetricRecordRow, MetricRollupRow, RollupMarkRow
from paceline.db.models.storage import StoredDataRow
from paceline.db.repositories import deletes, metrics, step_records
from paceline.db.repositories import rollups as repository
from paceline.db.repositories.metric_columns import RecordColumns
from paceline.db.repositories.metrics import StepRange
from paceline.db.repositories.rollups import EVERY_RANK, Marks, TailRecord
from paceline.monitoring.points import MetricRecord, RankBatch
from paceline.monitoring.rollup import LEVELS, Bucket
from tests import factories
from tests.factories import START

NAMES = ("loss", "mine")
RANKS = (0, 1)
PATIENCE = 60.0
Place = tuple[int, int]  # generation, rank
Point = tuple[int, float, dict[str, float]]  # step, time, values


class CutError(BaseException):
    """The process is gone."""


@dataclass
class Cut(DeletionPace):
    """The process of a refresh dies before this many transactions have been committed; each has one slice."""

    after: int = 0

    @asynccontextmanager
    async def turn(self, services: Services) -> AsyncIterator[AsyncSession]:
        async with services.metrics.write() as session:
            yield session
            if self.after == 0:
                raise CutError
            self.after -= 1
        self.rows = 1


def cut(after: int) -> Cut:
    return Cut(DeletionPace.of(PATIENCE).ends_at, rows=1, after=after)


@dataclass
class Story:
    """One job, what its ranks told in the order of telling, and what the coordinator makes of it."""

    services: Services
    writer: MetricsWriter
    job_id: str = field(default_factory=new_id)
    told: defaultdict[Place, list[MetricRecord]] = field(default_factory=lambda: defaultdict(list))

    async def tell(self, place: Place, points: list[tuple[int, dict[str, Any]]]) -> None:
        mine = self.told[place]
        for step, values in points:
            mine.append(MetricRecord(seq=len(mine) + 1, step=step, time=float(len(mine)), values=values))
        await self._send(place, mine[len(mine) - len(points) :])

    async def tell_again(self, place: Place, count: int) -> None:
        await self._send(place, self.told[place][-count:])

    async def _send(self, place: Place, records: list[MetricRecord]) -> None:
        await self.writer.store([RankBatch(job_id=self.job_id, generation=place[0], rank=place[1], metrics=records)])

    async def refresh(self, pace: DeletionPace | None = None) -> bool:
        return await rollups.refresh(self.services, pace or DeletionPace.of(PATIENCE), START)

    async def cut_short(self, after: int) -> None:
        try:
            await self.refresh(cut(after))
        except CutError:
            pass

    async def race(self) -> None:
        await asyncio.gather(self.refresh(cut(100)), self.refresh(cut(100)))

    async def drop_points(self, rows: int) -> None:
        async with self.services.metrics.write() as session:
            await deletes.drop_oldest(session, self.job_id, StorageKind.POINTS, rows=rows)

    async def read(self, level: int) -> dict[tuple[str, int, int, int], Bucket]:
        found: dict[tuple[str, int, int, int], Bucket] = {}
        async with self.services.metrics.read() as session:
            tails = (await repository.tail(session, self.job_id)).by_rank()
            for rank in RANKS:
                tail = tails.get(rank, repository.RollupTail())
                rows = await metrics.rollups(session, self.job_id, NAMES, rank, level, StepRange(0, 10**9), tail)
                assert [row[:4] for row in rows] == sorted(row[:4] for row in rows)
                found |= {(row.name, row.rank, row.generation, row.number): row.bucket for row in rows}
        return found

    def expected(self, level: int) -> dict[tuple[str, int, int, int], Bucket]:
        """From all points, in the plainest way."""
        points: defaultdict[tuple[str, int, int, int], list[tuple[int, float, float]]] = defaultdict(list)
        for (generation, rank), records in self.told.items():
            for record in records:
                for name, value in record.values.items():
                    points[name, rank, generation, record.step // level].append((record.step, record.time, float(value)))
        return {key: plain_bucket(of) for key, of in points.items()}

    async def check(self) -> None:
        for level in LEVELS:
            assert await self.read(level) == self.expected(level), level
        coarse = self.expected(LEVELS[-1])
        async with self.services.metrics.read() as session:
            assert await step_records.ranks(session, self.job_id) == sorted({rank for _, rank, _, _ in coarse})
            for name in NAMES:
                assert await step_records.count(session, self.job_id, name) == sum(
                    bucket.count for key, bucket in coarse.items() if key[:2] == (name, 0)
                )


def plain_bucket(points: list[tuple[int, float, float]]) -> Bucket:
    numbers = [value for _, _, value in points if not math.isnan(value)]
    step, at, last = max(reversed(points), key=lambda point: point[0])  # of several of one step the one that came last
    return Bucket(
        count=len(points),
        nan_count=len(points) - len(numbers),
        minimum=min(numbers, default=None),
        maximum=max(numbers, default=None),
        sum=sum(value for value in numbers if math.isfinite(value)),
        last=None if math.isnan(last) else last,
        last_step=step,
        last_time=at,
    )


@pytest.fixture
def writer(app: Any) -> MetricsWriter:
    found: MetricsWriter = app.state.writer
    return found


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollups, "CHUNK", 3)
    monkeypatch.setattr(rollups, "WINDOW_RECORDS", 6)
    monkeypatch.setattr(rollups, "SLICE_CHARACTERS", 40)


# --- whatever happens in whatever order

places = st.tuples(st.sampled_from((1, 2)), st.sampled_from(RANKS))
#: Sums of these are exact, so that the order in which they are added does not show.
numbers = st.integers(-(2**20), 2**20).map(float) | st.sampled_from(["NaN", "Infinity", "-Infinity"])
points = st.tuples(st.integers(0, 250) | st.integers(0, 3_000_000), st.dictionaries(st.sampled_from(NAMES), numbers))
acts = st.one_of(
    st.tuples(st.just("tell"), places, st.lists(points, min_size=1, max_size=8)),
    st.tuples(st.just("tell_again"), places, st.integers(1, 10)),
    st.tuples(st.just("refresh")),
    st.tuples(st.just("cut_short"), st.integers(0, 4)),
    st.tuples(st.just("race")),
    st.tuples(st.just("drop_points"), st.integers(1, 10)),
    st.tuples(st.just("check")),
)


@pytest.mark.usefixtures("small_windows")
@examples(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(story=st.lists(acts, min_size=1, max_size=14))
async def test_buckets_are_those_of_all_points_whatever_happens_in_whatever_order(
    services: Services, writer: MetricsWriter, story: list[Any]
) -> None:
    job = Story(services, writer)
    for act, *arguments in story:
        if act == "tell_again" and not job.told[arguments[0]]:
            continue
        await getattr(job, act)(*arguments)
    await job.check()
    await job.refresh()
    await job.check()
    async with services.metrics.read() as session:
        assert (await session.execute(select(RollupMarkRow.job_id, RollupMarkRow.rank))).all() in ([], [EVERY_RANK])


@pytest.mark.usefixtures("small_windows")
async def test_readers_see_every_point_once_while_roll_ups_are_made_and_points_come(services: Services, writer: MetricsWriter) -> None:
    """What a session reads is of one moment: marks that move between two of its queries would show a point twice, or not at all."""
    job, done, reads = Story(services, writer), asyncio.Event(), [0, 0, 0]

    async def tell() -> None:
        step = 0
        while step < 120 or min(reads) <= 3:  # a reader's connection may take longer to open than points take to come
            await job.tell((1, 0), [(step + each, {"loss": 1.0}) for each in range(4)])
            step += 4
        done.set()

    async def refresh() -> None:
        while not done.is_set():
            await job.refresh(cut(1_000))

    async def read(reader: int) -> None:
        while not done.is_set():
            async with services.metrics.read() as session:
                stored = await session.scalar(select(func.count()).select_from(MetricRecordRow))
                assert await step_records.count(session, job.job_id, "loss") == stored
            reads[reader] += 1

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(tell(), refresh(), *(read(reader) for reader in range(len(reads))))
    await job.check()


# --- what is kept and counted


async def test_points_without_roll_ups_are_not_deleted(services: Services, writer: MetricsWriter) -> None:
    job = Story(services, writer)
    await job.tell((1, 0), [(step, {"loss": float(step)}) for step in range(20)])
    await job.drop_points(1_000)
    async with services.metrics.read() as session:
        assert await session.scalar(select(func.count()).select_from(MetricRecordRow)) == 20
    assert await job.refresh()
    await job.drop_points(1_000)
    async with services.metrics.read() as session:
        assert await session.scalar(select(func.count()).select_from(MetricRecordRow)) == 0
        tally = (await session.scalars(select(StoredDataRow).where(StoredDataRow.kind == StorageKind.POINTS))).one()
    assert (tally.rows, tally.bytes, tally.gone_rows) == (0, 0, 20)
    await job.check()


@pytest.mark.usefixtures("small_windows")
async def test_buckets_are_counted_exactly_once_of_points_in_order(services: Services, writer: MetricsWriter) -> None:
    job = Story(services, writer)
    for generation, first in ((1, 1), (2, 95)):
        for step in range(first, first + 230, 23):
            await job.tell((generation, 1), [(step + each, {"loss": 1.0, "mine": 2.0}) for each in range(23)])
            await job.cut_short(1)
    await job.refresh()
    async with services.metrics.read() as session:
        counted = {row.kind: row.rows for row in await session.scalars(select(StoredDataRow)) if row.kind.startswith("curves")}
        stored = Counter(f"curves_{level}" for level in await session.scalars(select(MetricRollupRow.level)))
    assert counted == stored


async def test_a_refresh_waits_for_a_window_of_points_but_not_for_long(
    services: Services, writer: MetricsWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.api.loops.rollups.WINDOW_RECORDS", 50)
    job, keeper = Story(services, writer), RollupKeeper(services, pass_seconds=PATIENCE)

    async def made(after: timedelta) -> int:
        await keeper.step_once(START + after)
        async with services.metrics.read() as session:
            return await session.scalar(select(func.coalesce(func.sum(MetricRollupRow.count), 0)).where(MetricRollupRow.level == 10)) or 0

    await job.tell((1, 0), [(step, {"loss": 1.0}) for step in range(20)])
    assert [await made(timedelta(0)), await made(LONGEST_WAIT / 2), await made(LONGEST_WAIT)] == [0, 0, 20]
    await job.tell((1, 0), [(step, {"loss": 1.0}) for step in range(20, 40)])
    assert [await made(2 * LONGEST_WAIT), await made(2.9 * LONGEST_WAIT)] == [20, 20]
    await job.tell((1, 0), [(step, {"loss": 1.0}) for step in range(40, 70)])
    assert await made(2.9 * LONGEST_WAIT) == 70
    monkeypatch.setattr("paceline.api.loops.rollups.WINDOW_CHARACTERS", 10)
    await job.tell((1, 0), [(70, {"loss": 1.0})])
    assert await made(3 * LONGEST_WAIT) == 71


async def test_a_refresh_waits_no_longer_after_the_clock_was_set_back(services: Services, writer: MetricsWriter) -> None:
    job, keeper = Story(services, writer), RollupKeeper(services, pass_seconds=PATIENCE)
    await job.tell((1, 0), [(step, {"loss": 1.0}) for step in range(20)])
    for moment in (START + timedelta(days=1), START, START + LONGEST_WAIT):
        await keeper.step_once(moment)
    async with services.metrics.read() as session:
        assert await session.scalar(select(func.count()).select_from(MetricRollupRow).where(MetricRollupRow.level == 10)) == 2


# --- pure


def record(seq: int, rank: int = 0, values: str = "{}") -> RecordColumns:
    return RecordColumns(seq, rank, 1, seq, 0.0, values)


def test_slices_begin_behind_each_ranks_own_mark_and_are_small() -> None:
    tail = [TailRecord("a", record(seq, seq % 2, "v" * 30_000)) for seq in range(11, 17)]
    found = rollups.slices(tail, Marks(every=10, ranks={("a", 1): 13}))
    assert [(each.rank, each.after, each.last, len(each.records)) for each in found] == [
        (("a", 0), 10, 14, 2),
        (("a", 0), 14, 16, 1),
        (("a", 1), 13, 15, 1),
    ]


def test_a_slice_counts_only_where_the_mark_still_is() -> None:
    before = Marks(every=10, ranks={("a", 1): 13})
    first, second = PointSlice(("a", 0), 10, [record(12)]), PointSlice(("a", 0), 12, [record(14)])
    other = PointSlice(("a", 1), 13, [record(15)])
    assert rollups.is_next([first, second, other], before, before)
    assert not rollups.is_next([second], before, before)
    assert rollups.is_next([second], before, Marks(10, {("a", 0): 12}))
    assert not rollups.is_next([first], before, Marks(10, {("a", 0): 12}))
    assert not rollups.is_next([other], before, Marks(11, {("a", 1): 13}))
    assert not rollups.is_next([], before, Marks(14, {}))


def test_a_value_beyond_a_million_steps_has_buckets_of_every_level() -> None:
    found: dict[rollups.Key, Bucket] = {}
    rollups.roll_up(PointSlice(("a", 0), 0, [RecordColumns(1, 0, 1, 2_500_000, 0.0, '{"loss":2.0}')]), found)
    assert sorted((key[3], key[4]) for key in found) == [(level, 2_500_000 // level) for level in LEVELS]
    assert rollups.new_sizes(found, {("a", "loss", 0, 1): 2_499_999}) == {
        ("a", f"curves_{level}"): (1, 120) if level <= 100_000 else (0, 0) for level in LEVELS
    }


# --- a job whose points cannot be rolled up


async def damage(services: Services, job: Story, seq: int, values: str = "not JSON") -> None:
    async with services.metrics.write() as session:
        where = (MetricRecordRow.job_id == job.job_id, MetricRecordRow.step == seq)
        await session.execute(update(MetricRecordRow).where(*where).values(values=values))


async def held_up(services: Services) -> list[str | None]:
    async with services.control.read() as session:
        return list(await session.scalars(select(EventRow.job_id).where(EventRow.type == "job.held_up").order_by(EventRow.seq)))


@pytest.mark.usefixtures("small_windows")
async def test_a_job_whose_points_cannot_be_read_keeps_no_other_from_its_curves(
    services: Services, writer: MetricsWriter, caplog: pytest.LogCaptureFixture
) -> None:
    """No roll-up of any job was made any more, and so no point of any job was ever old enough to go."""
    caplog.set_level("CRITICAL")
    async with services.write() as session:
        bad, good = [Story(services, writer, (await factories.create_job(session, state=JobState.RUNNING)).id) for _ in range(2)]
    for first in range(0, 60, 10):
        for job in (bad, good):
            await job.tell((1, 0), [(step, {"loss": float(step)}) for step in range(first, first + 10)])
    for step in (3, 13):
        await damage(services, bad, step)
    assert await bad.refresh()
    await good.check()
    assert await held_up(services) == [bad.job_id]
    await bad.tell((1, 0), [(step, {"loss": 1.0}) for step in range(100, 120)])
    assert await bad.refresh()
    assert {key[3]: bucket.count for key, bucket in (await bad.read(10)).items() if key[3] >= 10} == {10: 10, 11: 10}
    assert services.troubles.held_up("job") == 1, "until it has ended: its curves lack points"
    async with services.write() as session:
        await session.execute(update(JobRow).values(state=JobState.COMPLETED))
    await bad.refresh()
    assert services.troubles.held_up("job") == 0
