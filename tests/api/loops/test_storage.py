"""Whatever is stored has an end, on both databases: by age, by size, and with a word in the job's history."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select, update

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.loops.storage import StorageKeeper
from paceline.api.services.lifecycle import events
from paceline.api.services.storage import aging
from paceline.api.services.storage.keeping import RetentionSweep
from paceline.cluster.history.storage import KeepPolicy
from paceline.cluster.states import CheckpointState, JobState, NodeState, RankState
from paceline.db.models.artifacts import ArtifactChunkRow, ArtifactRow
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.events import EventRow
from paceline.db.models.jobs import GenerationRow, RankEventMarkRow, RankRow
from paceline.db.models.metrics import LogLineRow, MetricRecordRow, MetricRollupRow, StreamMarkRow
from paceline.db.models.nodes import NodeRow
from paceline.db.models.storage import ArrivalMarkRow, StoredDataRow
from paceline.db.repositories import artifacts as artifact_rows
from paceline.monitoring.points import RankBatch
from tests import factories
from tests.api.stored import PATIENCE, Store
from tests.factories import START

DAY = timedelta(days=1)


@pytest.fixture
async def store(app: Any, services: Services) -> Store:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
    return Store(services, app.state.writer, node)


async def test_raw_points_and_lines_go_after_30_days_and_curves_stay(store: Store) -> None:
    job = await store.job()
    await store.store(job, 1, 100)
    await store.passes(START)  # notes how far the tables are
    await store.store(job, 101, 50, at=START + DAY, lines=5)
    await store.passes(START + timedelta(days=29))
    assert await store.count(MetricRecordRow) == 150
    await store.passes(START + timedelta(days=30, minutes=1))
    assert await store.count(MetricRecordRow) == 50
    assert await store.count(LogLineRow) == 5
    assert await store.count(MetricRollupRow, MetricRollupRow.level == 10) == 2 * 16
    assert await store.told(job) == [
        "raw points up to step 100 were removed: older than 30 days; 10 log lines were removed: older than 30 days"
    ]


async def test_curves_go_a_year_after_their_job_ended_and_never_while_it_lives(store: Store) -> None:
    ended, living = await store.job(JobState.COMPLETED), await store.job()
    for job in (ended, living):
        await store.store(job, lines=0)
    await store.passes(START + timedelta(days=366))
    assert await store.count(MetricRollupRow, MetricRollupRow.job_id == ended.id) == 0
    assert await store.count(MetricRollupRow, MetricRollupRow.job_id == living.id) > 0


async def test_a_clock_that_is_months_ahead_for_a_moment_deletes_nothing(store: Store) -> None:
    """It deleted all points and lines up to the last hour, and curves, events and files of ended jobs."""
    job, passed = await store.job(JobState.COMPLETED), 0.0
    store.services.uptime.monotonic = lambda: passed
    keeper = StorageKeeper(store.services, pass_seconds=PATIENCE)

    async def turn(seconds: float, ahead: timedelta = timedelta()) -> None:
        nonlocal passed
        passed = seconds
        now = START + timedelta(seconds=seconds) + ahead
        store.services.uptime.note(now)
        await keeper.step_once(now)

    await turn(0)
    await turn(3600)
    await store.store(job)
    await turn(7200)
    assert await store.count(ArrivalMarkRow) == 2
    for seconds in (7210, 7220, 7230):
        await turn(seconds, 400 * DAY)
    await turn(7240)
    assert (await store.count(MetricRecordRow), await store.count(LogLineRow), await store.count(ArrivalMarkRow)) == (100, 10, 2)
    assert await store.count(MetricRollupRow) > 0
    await turn(7240 + 3600)
    assert await store.count(ArrivalMarkRow) == 3
    await turn(7240 + 31 * 86400)
    assert await store.count(MetricRecordRow) == 0


async def test_a_machine_that_starts_with_a_wrong_clock_has_an_hour_to_set_it(store: Store) -> None:
    job = await store.job(JobState.COMPLETED)
    await store.store(job)
    await store.passes(START)
    store.services.uptime.note(START + 400 * DAY)
    await store.passes(START + 400 * DAY)
    assert await store.count(MetricRecordRow) == 100
    await store.passes(START + 400 * DAY + timedelta(hours=1))
    assert await store.count(MetricRecordRow) == 0


async def test_marks_of_arrival_go_on_after_the_clock_was_set_back(store: Store) -> None:
    """None was made until that time had come again, and nothing was old until then."""
    job = await store.job()
    await store.passes(START + 400 * DAY)
    await store.store(job)
    await store.passes(START + timedelta(hours=2))
    async with store.services.metrics.read() as session:
        assert list(await session.scalars(select(ArrivalMarkRow.time))) == [START + timedelta(hours=2)]
    await store.passes(START + timedelta(days=31))
    assert await store.count(MetricRecordRow) == 0


async def test_above_the_size_the_oldest_ended_job_gives_way_and_the_living_one_stays(store: Store) -> None:
    old, living = await store.job(JobState.FAILED), await store.job()
    new = [await store.job(JobState.COMPLETED) for _ in range(3)]
    for hours, job in enumerate((old, *new, living)):
        await store.store(job, 1, 400, at=START + timedelta(hours=hours), lines=0)
    async with store.services.metrics.read() as session:
        total = int(await session.scalar(select(func.sum(StoredDataRow.bytes))) or 0)
        raw = (await session.scalar(select(StoredDataRow.bytes).where(StoredDataRow.job_id == old.id, StoredDataRow.kind == "points"))) or 0
    await store.passes(START + DAY, keep_size=int((total - raw * 0.75) / 0.98))
    counts = [await store.count(MetricRecordRow, MetricRecordRow.job_id == job.id) for job in (old, *new, living)]
    assert (90 <= counts[0] <= 110, counts[1:]) == (True, [400] * 4), counts
    (told,) = await store.told(old)
    assert "PACELINE_KEEP_SIZE" in told


async def test_one_living_job_that_fills_everything_loses_its_oldest_points_and_is_told(store: Store) -> None:
    job = await store.job()
    await store.store(job, 1, 2_000, lines=0)
    await store.passes(START + timedelta(minutes=1), keep_size=200_000)
    async with store.services.metrics.read() as session:
        kept = list(await session.scalars(select(MetricRecordRow.step).order_by(MetricRecordRow.step)))
        left = (await session.scalar(select(func.sum(StoredDataRow.bytes)))) or 0
    assert left <= 200_000
    assert kept[-1] == 2_000
    assert any("of this job alone take over 25% of it" in message for message in await store.told(job))


async def test_a_flood_of_lines_costs_no_other_job_a_point(store: Store) -> None:
    ended, flood = await store.job(JobState.COMPLETED), await store.job()
    await store.store(ended, 1, 400, lines=0)
    curves = await store.count(MetricRollupRow)
    await store.store(flood, 1, 1, lines=5_000)
    async with store.services.metrics.read() as session:
        total = int(await session.scalar(select(func.sum(StoredDataRow.bytes))) or 0)
    await store.passes(START + timedelta(minutes=1), keep_size=int(total * 0.8))
    assert await store.count(MetricRecordRow, MetricRecordRow.job_id == ended.id) == 400
    assert await store.count(MetricRollupRow, MetricRollupRow.job_id == ended.id) == curves
    assert 0 < await store.count(LogLineRow) < 5_000
    assert await store.told(ended) == []
    (told,) = await store.told(flood)
    assert "of this job alone take over 25% of it" in told


async def test_what_is_counted_is_what_is_stored(store: Store) -> None:
    job = await store.job(JobState.COMPLETED)
    for first in range(1, 200, 37):
        await store.store(job, first, 37, lines=3 if first == 1 else 0)
    async with store.services.metrics.read() as session:
        counted = {row.kind: row.rows for row in await session.scalars(select(StoredDataRow))}
    assert (counted["points"], counted["lines"]) == (await store.count(MetricRecordRow), 3)
    assert counted["curves_10"] == pytest.approx(await store.count(MetricRollupRow, MetricRollupRow.level == 10), abs=2)
    await store.passes(START + timedelta(days=400))
    async with store.services.metrics.read() as session:
        left = {row.kind: (row.rows, row.bytes) for row in await session.scalars(select(StoredDataRow)) if row.kind.startswith("curves")}
    assert set(left.values()) == {(0, 0)}


async def test_old_events_go_but_for_those_of_jobs_that_live(store: Store) -> None:
    ended, living = await store.job(JobState.COMPLETED), await store.job()
    async with store.services.write() as session:
        for job_id in (ended.id, living.id, None):
            await events.record(session, type="job.state", actor=SYSTEM, cause="", message="old", job_id=job_id, time=START)
    await store.passes(START)
    async with store.services.write() as session:
        await events.record(session, type="job.state", actor=SYSTEM, cause="", message="new", job_id=ended.id, time=START + DAY)
    await store.passes(START + timedelta(days=366))
    assert await store.told(ended, "job.state") == ["new"]
    assert await store.told(living, "job.state") == ["old"]
    assert await store.count(EventRow, EventRow.message == "old") == 1


async def test_records_and_events_of_deleted_checkpoints_go_also_of_jobs_that_live(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of months that saves each minute added four rows for each save, for good."""
    monkeypatch.setattr(aging, "CHECKPOINTS_AT_ONCE", 2)
    living = await store.job()
    states = dict.fromkeys(range(1, 10), CheckpointState.DELETED) | {4: CheckpointState.SUPERSEDED}
    async with store.services.write() as session:
        for step, state in states.items():
            row = factories.checkpoint(living, store.node, step=step, state=state, created_at=START + DAY * (step > 7))
            session.add(row)
            await session.flush()
            message = f"step {step}"
            data: dict[str, Any] = {"actor": SYSTEM, "cause": "", "message": message, "job_id": living.id, "time": row.created_at}
            await events.record(session, type="checkpoint.deleted", **data)
            if step == 2:
                living_since = await factories.create_job(session)
                living_since.restored_from = row.id
    await store.passes(START)
    await store.passes(START + timedelta(days=365, hours=2))
    async with store.services.control.read() as session:
        left = list(await session.scalars(select(CheckpointRow.step).order_by(CheckpointRow.step)))
    assert left == [2, 4, 8, 9]  # a job was started from one, one is on disk, two are younger
    await store.passes(START + timedelta(days=400))
    async with store.services.control.read() as session:
        left = list(await session.scalars(select(CheckpointRow.step).order_by(CheckpointRow.step)))
    assert left == [2, 4, 9]  # the newest of its generation tells when it was saved last
    assert await store.told(living, "checkpoint.deleted") == []


async def test_finished_ranks_of_earlier_generations_go_and_the_newest_stay(store: Store) -> None:
    job = await store.job(JobState.COMPLETED, generation=3)
    async with store.services.write() as session:
        for generation, drained in ((1, True), (2, False)):
            session.add(GenerationRow(job_id=job.id, generation=generation, world_size=1, started_at=START, store_token="t"))
            await session.flush()
            place = {"job_id": job.id, "generation": generation, "rank": 0}
            where = {"node_id": store.node.id, "slot": 0, "local_rank": 0, "node_rank": 0, "updated_at": START}
            session.add(RankRow(**place, **where, state=RankState.EXITED, drained=drained))
            session.add(RankEventMarkRow(**place, seq=5))
    await store.store(job, lines=0)
    await store.passes(START + timedelta(days=31))
    async with store.services.control.read() as session:
        ranks = list(await session.scalars(select(RankRow.generation).where(RankRow.job_id == job.id).order_by(RankRow.generation)))
        marks = list(await session.scalars(select(RankEventMarkRow.generation).where(RankEventMarkRow.job_id == job.id)))
    assert (ranks, marks) == ([2, 3], [2])
    assert await store.count(StreamMarkRow) == 0


async def test_a_rank_that_may_still_send_keeps_its_mark(store: Store) -> None:
    """Without it, whatever its node has kept would be stored a second time when that comes back."""
    job = await store.job(JobState.COMPLETED, generation=2)
    async with store.services.write() as session:
        away, _ = await factories.create_node(session, name="away", state=NodeState.LOST)
        session.add(GenerationRow(job_id=job.id, generation=1, world_size=2, started_at=START, store_token="t"))
        await session.flush()
        for rank, (node, drained) in enumerate([(store.node, True), (away, False)]):
            where = {"node_id": node.id, "slot": rank, "local_rank": rank, "node_rank": 0, "updated_at": START}
            session.add(RankRow(job_id=job.id, generation=1, rank=rank, **where, state=RankState.EXITED, drained=drained))
    store.writer.now = lambda: START
    for rank in (0, 1):
        await store.writer.store([RankBatch(job_id=job.id, generation=1, rank=rank, metrics=factories.records(1, 5))])
    await store.passes(START + timedelta(days=31))
    async with store.services.metrics.read() as session:
        marks = list(await session.execute(select(StreamMarkRow.rank, StreamMarkRow.seq).where(StreamMarkRow.job_id == job.id)))
    assert [tuple(mark) for mark in marks] == [(1, 5)]


async def test_traces_of_ended_jobs_go_after_90_days(store: Store) -> None:
    ended, living = await store.job(JobState.COMPLETED), await store.job()
    columns: dict[str, Any] = {"generation": 1, "rank": 0, "node_id": store.node.id, "name": "t", "kind": "trace"}
    columns |= {"first_step": 1, "last_step": 2, "bytes": 1}
    columns |= {"sha256": "0" * 64, "created_at": START, "stored_at": START}
    async with store.services.write() as session:
        rows = [ArtifactRow(job_id=job.id, **columns) for job in (ended, living)]
        session.add_all(rows)
    async with store.services.metrics.write() as points:
        for row in rows:
            await artifact_rows.add_chunk(points, row.id, 0, b"x")
    await store.passes(START + timedelta(days=89))
    assert (await store.count(ArtifactRow), await store.count(ArtifactChunkRow)) == (2, 2)
    await store.passes(START + timedelta(days=91))
    assert (await store.count(ArtifactRow), await store.count(ArtifactChunkRow)) == (1, 1)
    assert await store.count(ArtifactRow, ArtifactRow.job_id == living.id) == 1
    assert await store.told(ended, "job.trace_removed") == ["the trace of steps 1 to 2 of rank 0 was removed: older than 90 days"]


async def test_a_file_of_a_lost_node_does_not_arrive_for_ever_and_contents_without_a_row_go(store: Store) -> None:
    job = await store.job()
    async with store.services.write() as session:
        await session.execute(update(NodeRow).where(NodeRow.id == store.node.id).values(state=NodeState.LOST))
        row = ArtifactRow(job_id=job.id, generation=1, rank=0, node_id=store.node.id, name="t", kind="trace", first_step=1, last_step=2)
        row.bytes, row.sha256, row.created_at = 1 << 20, "0" * 64, START
        session.add(row)
    async with store.services.metrics.write() as points:
        for artifact_id in (row.id, "removed-while-it-came"):
            await artifact_rows.add_chunk(points, artifact_id, 0, b"x")
    await store.passes(START + timedelta(hours=23))
    assert (await store.count(ArtifactRow), await store.count(ArtifactChunkRow)) == (1, 1)
    await store.passes(START + timedelta(hours=25))
    async with store.services.control.read() as session:
        assert await artifact_rows.held_by_job(session, job.id) == (0, 0)
    assert await store.count(ArtifactChunkRow) == 0
    assert await store.told(job, "job.trace_removed") == [
        "the trace of steps 1 to 2 of rank 0 was removed: the rest of it never came from its node"
    ]


async def test_storing_goes_on_while_the_same_job_gives_way(store: Store) -> None:
    """Deletes of roll-ups meet the writer's upserts of the same rows: neither waits for the other for ever, and nothing new is lost."""
    job = await store.job()
    await store.store(job, 1, 300, lines=0)

    async def store_on() -> None:
        for first in range(301, 901, 100):
            await store.store(job, first, 100, lines=0)

    async def give_way() -> None:
        for _ in range(3):
            await store.passes(START, keep_size=20_000)

    async with asyncio.timeout(30):
        await asyncio.gather(store_on(), give_way())
    async with store.services.metrics.read() as session:
        assert await session.scalar(select(StreamMarkRow.seq)) == 900
        assert await session.scalar(select(func.max(MetricRollupRow.last_step))) == 900


async def test_a_part_that_fails_holds_up_no_other(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await store.job(JobState.COMPLETED)
    await store.store(job, 1, 300, lines=0)

    async def broken(*_: Any) -> None:
        raise RuntimeError("a row that nobody expected")

    monkeypatch.setattr(aging, "by_age", broken)
    with pytest.raises(RuntimeError, match="nobody expected"):
        await store.passes(START, keep_size=10_000)
    assert await store.count(MetricRecordRow) < 300
    assert await store.count(ArrivalMarkRow) == 1


async def test_curves_reach_back_to_steps_whose_points_are_gone(store: Store, client: httpx.AsyncClient) -> None:
    job = await store.job()
    await store.store(job, 1, 100, lines=0)
    await store.passes(START)
    await store.store(job, 101, 50, at=START + DAY, lines=0)
    await store.passes(START + timedelta(days=30, minutes=1))
    (curve,) = (await client.get(f"/api/v1/metrics/jobs/{job.id}?names=loss")).json()["curves"]
    assert (curve["bucket_steps"], curve["steps"]) == (10, [*range(9, 150, 10), 150])
    (recent,) = (await client.get(f"/api/v1/metrics/jobs/{job.id}?names=loss&first_step=101")).json()["curves"]
    assert (recent["bucket_steps"], recent["steps"]) == (1, list(range(101, 151)))
    refused = await client.get(f"/api/v1/training/jobs/{job.id}/samples")
    assert (refused.status_code, refused.json()["code"]) == (410, "no_longer_kept"), refused.text


async def test_jobs_whose_points_are_gone_are_compared_by_all_else(store: Store, client: httpx.AsyncClient) -> None:
    """The whole comparison was refused, with the differences of their specs in it."""
    kept, removed = await store.job(), await store.job()
    await store.store(removed, 1, 100, lines=0)
    await store.passes(START)
    await store.store(kept, 1, 50, at=START + DAY, lines=0)
    await store.store(removed, 101, 50, at=START + DAY, lines=0)
    await store.passes(START + timedelta(days=30, minutes=1))
    answer = await client.get(f"/api/v1/training/compare?jobs={kept.id},{removed.id}")
    assert answer.status_code == 200, answer.text
    (found,) = answer.json()["items"]
    assert (found["verdict"], found["same_run"], found["metrics"]) == ("nothing_to_compare", False, [])
    assert found["text"] == "steps cannot be compared: the raw points of one of them up to step 100 have been removed"
    assert [side["last_step"] for side in found["jobs"]] == [50, 150]
    assert found["spec_differences"] == []


async def test_an_sqlite_file_becomes_smaller(store: Store) -> None:
    file = store.services.settings.data / "metrics.db"
    if not store.services.metrics.is_sqlite:
        pytest.skip("PostgreSQL looks after its files itself")
    job = await store.job(JobState.COMPLETED)
    await store.store(job, 1, 4_000, lines=0)
    await store.passes(START)
    await store.services.metrics.empty_log(0)
    before = file.stat().st_size
    await store.passes(START + timedelta(days=31))
    assert await store.count(MetricRecordRow) == 0
    assert file.stat().st_size < before * 0.8
    assert file.with_name("metrics.db-wal").stat().st_size == 0


async def test_an_sqlite_file_becomes_smaller_where_there_is_always_more_to_delete(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that filled the database all the time left no time of any pass to give pages back."""
    if not store.services.metrics.is_sqlite:
        pytest.skip("PostgreSQL looks after its files itself")
    job = await store.job(JobState.COMPLETED)
    await store.store(job, 1, 4_000, lines=0)
    await store.passes(START)
    await store.services.metrics.empty_log(0)
    by_size = aging.by_size

    async def all_the_time(sweep: RetentionSweep, policy: KeepPolicy) -> None:
        await by_size(sweep, policy)
        sweep.pace.ends_at = 0.0

    monkeypatch.setattr(aging, "by_size", all_the_time)
    before = (store.services.settings.data / "metrics.db").stat().st_size
    await store.passes(START + timedelta(days=31))
    assert (store.services.settings.data / "metrics.db").stat().st_size < before * 0.8
