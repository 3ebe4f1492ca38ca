"""SQLite's connections: one crossing to their thread for each statement, whatever becomes of the transaction around it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from paceline.db import sqlite_connection
from paceline.db.session import Database, open_sqlite
from paceline.db.sqlite_connection import StatementConnection

WAIT_SECONDS = 10.0


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = open_sqlite(tmp_path / "test.db", synchronous="NORMAL")
    async with database.write() as session:
        await session.execute(text("CREATE TABLE numbers (id INTEGER PRIMARY KEY, value INTEGER NOT NULL)"))
    yield database
    await database.close()


@pytest.fixture
def crossings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the functions that connections have had run in their threads."""
    found: list[str] = []
    cross = StatementConnection._execute

    async def counted(self: StatementConnection, fn: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(fn.__name__)
        return await cross(self, fn, *args, **kwargs)

    monkeypatch.setattr(StatementConnection, "_execute", counted)
    return found


async def numbers(database: Database) -> list[int]:
    async with database.read() as session:
        return list(await session.scalars(text("SELECT value FROM numbers ORDER BY id")))


async def test_a_transaction_crosses_once_for_each_statement_and_once_to_end(database: Database, crossings: list[str]) -> None:
    async with database.write() as session:
        await session.execute(text("INSERT INTO numbers (value) VALUES (1)"))
        await session.execute(text("UPDATE numbers SET value = 2"))
    assert crossings == ["_run", "_run", "commit"]
    crossings.clear()
    assert await numbers(database) == [2]
    assert crossings == ["_run", "rollback"]


async def test_a_transaction_without_a_statement_crosses_never(database: Database, crossings: list[str]) -> None:
    async with database.write() as session:
        await session.connection()
    assert crossings == []
    assert await numbers(database) == []


async def test_a_statement_that_fails_leaves_nothing_behind(database: Database) -> None:
    async def insert() -> None:
        async with database.write() as session:
            await session.execute(text("INSERT INTO numbers (value) VALUES (1)"))
            await session.execute(text("INSERT INTO numbers (value) VALUES (NULL)"))

    with pytest.raises(IntegrityError, match="NOT NULL"):
        await insert()
    assert await numbers(database) == []


async def test_a_statement_that_is_cut_short_is_rolled_back_although_its_thread_runs_it_later(database: Database) -> None:
    """The pool gives the connection to the next one, which must not find a transaction open on it."""

    async def insert() -> None:
        async with database.write() as session:
            raw = (await (await session.connection()).get_raw_connection()).driver_connection
            assert isinstance(raw, StatementConnection)
            earlier.append(asyncio.create_task(raw._execute(free.wait, WAIT_SECONDS)))  # its thread is busy
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(writer.cancel)
            asyncio.get_running_loop().call_later(0.05, free.set)
            await session.execute(text("INSERT INTO numbers (value) VALUES (1)"))

    free, earlier = threading.Event(), list[asyncio.Task[Any]]()
    writer = asyncio.create_task(insert())
    with pytest.raises(asyncio.CancelledError):
        await writer
    assert await earlier[0]
    assert await numbers(database) == []
    async with asyncio.timeout(WAIT_SECONDS), database.write() as session:
        await session.execute(text("INSERT INTO numbers (value) VALUES (3)"))
    assert await numbers(database) == [3]


async def test_results_have_their_rows_names_and_counts(tmp_path: Path) -> None:
    connection = sqlite_connection.connect(tmp_path / "test.db")
    await connection
    try:
        cursor = connection.cursor()
        await cursor.execute("CREATE TABLE numbers (id INTEGER PRIMARY KEY, value INTEGER)")
        assert (cursor.description, list(await cursor.fetchall())) == (None, [])
        await cursor.executemany("INSERT INTO numbers (value) VALUES (?)", [(5,), (6,)])
        assert cursor.rowcount == 2
        await cursor.execute("INSERT INTO numbers (value) VALUES (?)", (7,))
        assert cursor.lastrowid == 3
        await cursor.execute("SELECT value FROM numbers ORDER BY id")
        assert ([column[0] for column in cursor.description], list(await cursor.fetchall())) == (["value"], [(5,), (6,), (7,)])
        await connection.commit()
    finally:
        await connection.close()


async def test_a_turn_that_another_process_has_is_told_at_the_first_statement(tmp_path: Path, database: Database) -> None:
    other = sqlite_connection.connect(tmp_path / "test.db", timeout=0.01, isolation_level=None)
    await other
    try:
        async with database.write() as session:
            await session.execute(text("INSERT INTO numbers (value) VALUES (1)"))
            other.begin("BEGIN IMMEDIATE")
            with pytest.raises(Exception, match="locked"):
                await other.cursor().execute("SELECT 1")
        await other.cursor().execute("SELECT 1")  # outside of any transaction: what could not begin is forgotten
    finally:
        await other.close()
