"""Transactions: committed at the edge or not at all, one writer after the other, times and JSON as they were."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import func, select, update
from sqlalchemy.exc import StatementError
from sqlalchemy.pool import QueuePool

from api.deps import Services
from db.errors import UnsupportedDatabaseError
from db.models.events import EventRow
from db.models.jobs import JobRow
from db.models.leases import LeaseRow
from db.repositories import events
from db.session import open_databases, postgres_url
from tests import factories


async def test_an_exception_rolls_everything_back(services: Services) -> None:
    async def fail() -> None:
        async with services.write() as session:
            await factories.create_job(session)
            raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError):
        await fail()
    async with services.control.read() as session:
        assert await session.scalar(select(func.count()).select_from(JobRow)) == 0


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


async def test_nobody_who_reads_on_by_seq_misses_an_event(services: Services) -> None:
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
