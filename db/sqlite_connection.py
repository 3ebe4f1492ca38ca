"""SQLite connections that cross to their thread once per statement, where aiosqlite crosses four times.

A crossing costs far more than a small query: two wake-ups, and both threads want the same interpreter lock. SQLAlchemy reads every result
to its end at once, so making a cursor, running the statement, reading its rows and closing it is one piece of work, and the BEGIN before a
transaction's first statement belongs to it as well.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import aiosqlite


class Outcome(NamedTuple):
    rows: list[Any]
    description: Any
    rowcount: int
    lastrowid: int | None


_NOTHING = Outcome([], None, -1, None)


class StatementConnection(aiosqlite.Connection):
    """A connection whose cursors hold whole results. For SQLAlchemy, which commits, rolls back and closes it as any other."""

    _begin: str | None = None
    _was_cut_short = False

    def begin(self, statement: str) -> None:
        """Begin a transaction with this statement, together with the first one that is run."""
        self._begin = statement

    def cursor(self) -> StatementCursor:  # type: ignore[override]
        return StatementCursor(self)

    async def run(self, method: str, sql: str, parameters: Iterable[Any]) -> Outcome:
        """Run a statement by the named method of a cursor, and read all its rows."""
        begin, self._begin = self._begin, None
        return cast(Outcome, await self._execute(self._run, begin, method, sql, parameters))

    async def commit(self) -> None:
        if self._may_be_in_transaction():
            await super().commit()

    async def rollback(self) -> None:
        """Roll back; without crossing where no transaction has begun, as after each commit."""
        if self._may_be_in_transaction():
            await super().rollback()

    def _may_be_in_transaction(self) -> bool:
        """Whether there is something to end. After a cancelled statement nothing is certain: its thread may have yet to run it."""
        was_cut_short, self._was_cut_short, self._begin = self._was_cut_short, False, None
        return was_cut_short or self._conn.in_transaction

    async def _execute(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super()._execute(fn, *args, **kwargs)  # type: ignore[no-untyped-call]
        except asyncio.CancelledError:
            self._was_cut_short = True
            raise

    def _run(self, begin: str | None, method: str, sql: str, parameters: Iterable[Any]) -> Outcome:
        cursor = self._conn.cursor()
        try:
            if begin is not None:
                cursor.execute(begin)
            getattr(cursor, method)(sql, parameters)
            rows = cursor.fetchall() if cursor.description else []
            return Outcome(rows, cursor.description, cursor.rowcount, cursor.lastrowid)
        finally:
            cursor.close()


class StatementCursor:
    """A cursor, as far as SQLAlchemy asks for one. It has nothing open: it holds rows and facts of the last statement."""

    arraysize = 1

    def __init__(self, connection: StatementConnection) -> None:
        self._connection = connection
        self._outcome = _NOTHING

    async def __aenter__(self) -> StatementCursor:
        return self

    async def execute(self, sql: str, parameters: Iterable[Any] = ()) -> StatementCursor:
        self._outcome = await self._connection.run("execute", sql, parameters)
        return self

    async def executemany(self, sql: str, parameters: Iterable[Iterable[Any]]) -> StatementCursor:
        self._outcome = await self._connection.run("executemany", sql, parameters)
        return self

    async def fetchall(self) -> Sequence[Any]:
        return self._outcome.rows

    async def close(self) -> None:
        """Do nothing: a cursor of the driver was closed as its statement ended."""

    @property
    def description(self) -> Any:
        return self._outcome.description

    @property
    def rowcount(self) -> int:
        return self._outcome.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._outcome.lastrowid


def connect(database: str | Path, **options: Any) -> StatementConnection:
    """A connection that is made when it is awaited, with the options of `sqlite3.connect`. Its thread does not keep the process alive."""
    connection = StatementConnection(lambda: sqlite3.connect(str(database), **options), iter_chunk_size=64)
    connection._thread.daemon = True
    return connection
