"""Transactions: committed at the edge or not at all, one writer after the other, times and JSON as they were."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import httpx
import pytest
from sqlalchemy import func, select, text, update
from sqlalchemy.exc import StatementError
from sqlalchemy.pool import QueuePool

from paceline.api.core.context import Services
from paceline.db import session as db_session
from paceline.db.errors import DatabaseAwayError, DatabaseBusyError, UnsupportedDatabaseError
from paceline.db.migrate import upgrade_all
from paceline.db.models.events import EventRow
from paceline.db.models.jobs import JobRow
from paceline.db.models.leases import LeaseRow
from paceline.db.repositories import events, storage
from paceline.db.session import Database, open_databases, open_sqlite, postgres_url
from paceline.db.turns import MOST_IN_A_ROW, WriterTurns
from paceline.monitoring.files import sync_file
from tests import factories
from tests.waiting import until

WAIT_SECONDS = 10.0


async def test_an_exception_rolls_everything_back(services: Services) -> None:
    async def fail() -> None:
        async with services.write() as session:
            await factories.create_job(session)
            raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError):
        await fail()
    async with services.control.read() as session:
        assert await session.scalar(select(func.count()).select_from(JobRow)) == 0


async def test_connections_that_a_burst_has_opened_rest_afterwards(tmp_path: Path) -> None:
    """The coordinator's memory grew for an hour: taken by turns, all connections came to have full caches."""
    control, metrics = open_databases(tmp_path, None)
    engine = control.engine
    burst = [await engine.connect() for _ in range(4)]
    for connection in burst:
        await connection.close()
    used = set[int]()
    for _ in range(8):
        async with engine.connect() as connection:
            raw = await connection.get_raw_connection()
            used.add(id(raw.driver_connection))
    assert len(used) == 1
    await control.close()
    await metrics.close()


async def test_read_then_write_by_many_loses_no_update(services: Services) -> None:
    async with services.write() as session:
        job = await factories.create_job(session)

    async def add_one() -> None:
        async with services.write() as session:
            seen = (await session.scalars(select(JobRow).where(JobRow.id == job.id).with_for_update())).one()
            await asyncio.sleep(0)
            await session.execute(update(JobRow).where(JobRow.id == job.id).values(restarts=seen.restarts + 1))

    await asyncio.gather(*(add_one() for _ in range(20)))
    async with services.control.read() as session:
        assert await session.scalar(select(JobRow.restarts)) == 20


async def test_times_keep_their_moment_and_come_back_as_utc(services: Services) -> None:
    moment = datetime(2026, 11, 20, 14, 30, 0, 123456, tzinfo=timezone(timedelta(hours=2)))
    async with services.write() as session:
        session.add(LeaseRow(name="x", holder="y", expires_at=moment))
    async with services.control.read() as session:
        lease = await session.get_one(LeaseRow, "x")
        assert (lease.expires_at, lease.expires_at.tzinfo) == (moment, UTC)
        assert await session.scalar(select(LeaseRow.name).where(LeaseRow.expires_at == moment)) == "x"


async def test_a_time_without_zone_is_refused(services: Services) -> None:
    with pytest.raises(StatementError, match="no time zone"):
        async with services.write() as session:
            session.add(LeaseRow(name="x", holder="y", expires_at=datetime(2026, 1, 1)))  # noqa: DTZ001 - that is the mistake


async def test_json_keeps_nan_as_a_word(services: Services) -> None:
    async with services.write() as session:
        job = await factories.create_job(session, progress={"loss": float("nan"), "inner": [float("inf")]})
    async with services.control.read() as session:
        assert (await session.get_one(JobRow, job.id)).progress == {"loss": "NaN", "inner": ["Infinity"]}


async def test_no_reader_by_seq_misses_an_event(services: Services) -> None:
    """Transactions that commit in another order than they began still show their events in the order of seq."""
    seen: list[int] = []
    done = asyncio.Event()

    async def write(delay_turns: int) -> None:
        async with services.write() as session:
            row = EventRow(time=factories.START, type="t", actor_kind="system", actor_id="", actor_name="", cause="", message="", data={})
            await events.append(session, row)
            for _ in range(delay_turns):
                await asyncio.sleep(0)

    async def read() -> None:
        while not done.is_set() or len(seen) < 20:
            async with services.control.read() as session:
                seen.extend(row.seq for row in await events.after(session, seen[-1] if seen else 0, limit=100))

    reader = asyncio.create_task(read())
    await asyncio.gather(*(write((20 - n) * 5) for n in range(20)))
    done.set()
    await asyncio.wait_for(reader, 10)
    assert len(seen) == 20
    assert seen == sorted(seen)


def test_only_postgresql_urls_are_taken() -> None:
    assert postgres_url("postgres://u:p@h/d") == "postgresql+asyncpg://u:p@h/d"
    assert postgres_url("postgresql://u@h:1/d") == "postgresql+asyncpg://u@h:1/d"
    with pytest.raises(UnsupportedDatabaseError, match="mysql"):
        postgres_url("mysql://h/d")


async def test_control_survives_power_cuts_and_metrics_crashes(tmp_path: Path) -> None:
    control, metrics = open_databases(tmp_path, None)
    assert isinstance(control.engine.pool, QueuePool)
    found = []
    for database in (control, metrics):
        async with database.engine.connect() as connection:
            found.append(
                [(await connection.exec_driver_sql(f"PRAGMA {name}")).scalar() for name in ("journal_mode", "synchronous", "foreign_keys")]
            )
        await database.close()
    assert found == [["wal", 2, 1], ["wal", 1, 1]]


async def test_what_is_to_be_called_stored_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[Path] = []

    def flush(path: Path) -> None:
        sync_file(path)
        flushed.append(path)

    monkeypatch.setattr(db_session, "sync_file", flush)
    control, metrics = open_databases(tmp_path, None)
    await metrics.make_durable()  # nothing was committed yet
    await upgrade_all(control, metrics)
    await metrics.make_durable()
    await control.make_durable()  # its commits do by themselves
    assert flushed == [tmp_path / "metrics.db-wal"]
    await control.close()
    await metrics.close()


async def test_a_full_disk_is_called_full_and_the_way_out_told(tmp_path: Path) -> None:
    control, metrics = open_databases(tmp_path, None)
    await upgrade_all(control, metrics)

    async def fill() -> None:
        async with control.write() as session:
            await session.execute(text("PRAGMA max_page_count = 1"))  # as many as it has: not one more
            await session.execute(
                text("CREATE TABLE filling AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 9999) SELECT i FROM n")
            )

    with pytest.raises(DatabaseAwayError, match=r"the database is full: .*make room on the disk"):
        await fill()
    async with control.read() as session:
        assert await session.scalar(text("SELECT count(*) FROM sqlite_master WHERE name = 'filling'")) == 0
    await control.close()
    await metrics.close()


async def test_a_request_does_not_wait_behind_what_loops_and_agents_write() -> None:
    turns, order = WriterTurns(), list[str]()

    async def write(name: str, *, first: bool) -> None:
        await turns.take(WAIT_SECONDS, first=first)
        order.append(name)
        await asyncio.sleep(0)
        turns.release()

    await turns.take(WAIT_SECONDS)
    others = [asyncio.create_task(write(f"other {n}", first=False)) for n in range(3)]
    await asyncio.sleep(0)
    requests = [asyncio.create_task(write(f"request {n}", first=True)) for n in range(2)]
    await asyncio.sleep(0)
    turns.release()
    await asyncio.gather(*others, *requests)
    assert order == ["request 0", "request 1", "other 0", "other 1", "other 2"]


async def test_a_flood_of_requests_does_not_stop_the_loops() -> None:
    turns, order = WriterTurns(), list[str]()

    async def write(name: str, *, first: bool) -> None:
        await turns.take(WAIT_SECONDS, first=first)
        order.append(name)
        turns.release()

    await turns.take(WAIT_SECONDS)
    tasks = [asyncio.create_task(write("request", first=True)) for _ in range(3 * MOST_IN_A_ROW)]
    tasks += [asyncio.create_task(write("loop", first=False)) for _ in range(2)]
    await asyncio.sleep(0)
    turns.release()
    await asyncio.gather(*tasks)
    assert [place for place, name in enumerate(order) if name == "loop"] == [MOST_IN_A_ROW, 2 * MOST_IN_A_ROW + 1]


async def test_a_turn_that_is_not_waited_for_any_more_goes_to_the_next() -> None:
    turns = WriterTurns()
    await turns.take(WAIT_SECONDS)
    with pytest.raises(DatabaseBusyError, match="busy"):
        await turns.take(0.01)
    late, cancelled = asyncio.create_task(turns.take(WAIT_SECONDS)), asyncio.create_task(turns.take(WAIT_SECONDS, first=True))
    await asyncio.sleep(0)
    turns.release()  # to the one that is cancelled before it notices
    cancelled.cancel()
    await asyncio.wait_for(late, WAIT_SECONDS)
    turns.release()
    await turns.take(0.01)


@pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
async def test_what_a_user_submits_is_written_before_the_housekeeping_that_waits(services: Services, client: httpx.AsyncClient) -> None:
    order: list[str] = []
    held, go = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with services.write():
            held.set()
            await go.wait()

    async def housekeeping() -> None:
        async with services.write():
            order.append("housekeeping")

    async def submit() -> None:
        answer = await client.post("/api/v1/training/jobs", json=factories.job_spec().model_dump(mode="json"))
        order.append(str(answer.status_code))

    holder = asyncio.create_task(hold())
    await held.wait()
    loops = [asyncio.create_task(housekeeping()) for _ in range(20)]
    submitting = asyncio.create_task(submit())
    await until(lambda: services.control.waiting_requests, "the request waits for its turn", seconds=WAIT_SECONDS)
    go.set()
    await asyncio.gather(holder, submitting, *loops)
    assert order[-1] == "housekeeping", order


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = open_sqlite(tmp_path / "x.db", synchronous="NORMAL")
    yield opened
    await opened.close()


async def test_a_file_and_its_log_become_smaller_while_readers_overlap(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator whose pages and agents always read something kept a metrics.db of 221 MB for an hour, with 20 MB in it."""
    monkeypatch.setattr(db_session, "READERS_SECONDS", WAIT_SECONDS)  # on a busy machine one of 40 ms may take long
    path = tmp_path / "x.db"
    log = path.with_name("x.db-wal")
    async with database.write() as session:
        await session.execute(text("CREATE TABLE t (v TEXT)"))
    reading = [asyncio.create_task(_read_in_turns(database, first)) for first in (0.0, 0.02)]
    for _ in range(8):
        async with database.write() as session:
            await session.execute(text("INSERT INTO t VALUES (:v)"), [{"v": "x" * 1_000}] * 1_000)
    async with database.write() as session:
        await session.execute(text("DELETE FROM t"))
    async with database.write() as session:
        await storage.shrink(session, 1_000_000)
    before = path.stat().st_size + log.stat().st_size
    assert before > 8_000_000
    await database.empty_log(1 << 40)
    assert path.stat().st_size + log.stat().st_size == before, "a log below the limit is left alone"
    await database.empty_log(0)
    assert path.stat().st_size < 100_000
    assert log.stat().st_size == 0
    assert not any(task.done() for task in reading)
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)


async def _read_in_turns(database: Database, first: float) -> None:
    """Read for 40 ms, again and again: of two that begin 20 ms apart, one reads at any time."""
    await asyncio.sleep(first)
    while True:
        async with database.read() as session:
            await session.execute(text("SELECT count(*) FROM t"))
            await asyncio.sleep(0.04)


async def test_a_reader_that_takes_long_holds_up_no_writer_for_long(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Emptying the log waits for readers; one of a whole history may take minutes."""
    monkeypatch.setattr(db_session, "READERS_SECONDS", 0.05)
    async with database.write() as session:
        await session.execute(text("CREATE TABLE t (v TEXT)"))
    async with database.read() as reader:
        await reader.execute(text("SELECT count(*) FROM t"))
        async with database.write() as session:
            await session.execute(text("INSERT INTO t VALUES ('a')"))
        async with asyncio.timeout(WAIT_SECONDS / 2):
            await database.empty_log(0)
            async with database.write() as session:
                await session.execute(text("INSERT INTO t VALUES ('b')"))
        assert await reader.scalar(text("SELECT count(*) FROM t")) == 0, "it still sees its own moment"
    async with database.engine.connect() as connection:
        assert await connection.scalar(text("PRAGMA busy_timeout")) == db_session.BUSY_SECONDS * 1000
