"""Engines and sessions: `Database.read()` and `Database.write()`, one transaction each, committed at the edge.

SQLite has one writer at a time. Here writers queue in this process (`db/turns.py`: requests before housekeeping, and without the busy
handler's naps) and begin with BEGIN IMMEDIATE, so a transaction that reads and then writes never fails half-way because another one
wrote meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

from sqlalchemy import Dialect, event, make_url
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

from paceline.db import sqlite_connection
from paceline.db.away import raising_away_errors
from paceline.db.base import dump_json, load_json
from paceline.db.errors import DatabaseAwayError, UnsupportedDatabaseError
from paceline.db.sqlite_connection import StatementConnection
from paceline.db.turns import WriterTurns
from paceline.extras import pip_install
from paceline.monitoring.files import make_private, sync_file

BUSY_SECONDS = 10.0
#: How long readers are waited for, while nothing is written: nearly all have ended in a tenth of it.
READERS_SECONDS = 0.25
#: So that deleting makes a file smaller (`repositories.storage.shrink`). It holds for files that are made from now on; an older one
#: keeps its size and fills its free pages again, until its operator runs VACUUM on it while no coordinator runs.
VACUUM_PRAGMA = "auto_vacuum=INCREMENTAL"
_WRITE = "paceline_write"


class Database:
    """One database and its sessions. `read()` never writes, and all that it reads is of one moment; `write()` commits on the way out, or
    rolls back."""

    def __init__(self, engine: AsyncEngine, log: Path | None = None, *, syncs_log: bool = True) -> None:
        """`log`: the write-ahead log of an SQLite file. `syncs_log`: whether each commit is on the disk."""
        self.engine, self._log, self._syncs_log = engine, log, syncs_log
        self.is_sqlite = engine.dialect.name == "sqlite"
        # SQLite's transactions see one moment anyway.
        readers = engine if self.is_sqlite else engine.execution_options(isolation_level="REPEATABLE READ")
        self._readers = async_sessionmaker(readers, expire_on_commit=False, autoflush=False)
        self._writers = async_sessionmaker(engine.execution_options(**{_WRITE: True}), expire_on_commit=False)
        self._turns = WriterTurns()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncSession]:
        with raising_away_errors():
            async with self._readers() as session:
                yield session

    @asynccontextmanager
    async def write(self, *, request: bool = False) -> AsyncIterator[AsyncSession]:
        """A writing transaction. `request`: a user waits for the answer, so it goes before those of loops and agents."""
        if not self.is_sqlite:
            with raising_away_errors():
                async with self._writers.begin() as session:
                    yield session
            return
        await self._turns.take(BUSY_SECONDS, first=request)
        try:
            with raising_away_errors():
                async with self._writers.begin() as session:
                    yield session
        finally:
            self._turns.release()

    async def make_durable(self) -> None:
        """Make all that was committed survive a power cut, where a commit alone does not (`synchronous` NORMAL): before another database
        says that it is stored. It waits for the disk, so call it outside of transactions."""
        if self._log is not None and not self._syncs_log:
            with suppress(FileNotFoundError):  # nothing was committed yet
                await asyncio.to_thread(sync_file, self._log)

    async def empty_log(self, least_bytes: int) -> None:
        """Write the log of an SQLite file into the file, once it has so many bytes, and cut both to what is in use. SQLite does that by itself only
        at a moment without a reader: where readers overlap, neither becomes smaller for hours. Nothing is written meanwhile; where readers take
        longer than READERS_SECONDS, the next call tries again."""
        if self._log is None or not self._log.exists() or self._log.stat().st_size < least_bytes:
            return
        await self._turns.take(BUSY_SECONDS)
        try:
            async with self.engine.connect() as connection:
                raw = (await connection.get_raw_connection()).driver_connection
                assert raw is not None
                try:
                    await raw.executescript(f"{_busy_timeout(READERS_SECONDS)}; PRAGMA wal_checkpoint(TRUNCATE)")
                finally:
                    await raw.executescript(_busy_timeout(BUSY_SECONDS))
        finally:
            self._turns.release()

    @property
    def waiting_requests(self) -> int:
        """The number of requests that wait for the writer's turn."""
        return self._turns.waiting_requests

    async def close(self) -> None:
        await self.engine.dispose()


def open_sqlite(path: Path, *, synchronous: str) -> Database:
    """Open an SQLite file. `synchronous` FULL: a commit survives a power cut; NORMAL: it survives a crash of the process."""
    make_private(path.parent)
    engine = create_async_engine(
        f"sqlite+aiosqlite:///{path}",
        json_serializer=dump_json,
        json_deserializer=load_json,
        pool_size=16,
        max_overflow=16,
        pool_use_lifo=True,  # by turns, each connection would fill a cache of pages and one of statements of its own
        pool_timeout=BUSY_SECONDS,
        connect_args={"timeout": BUSY_SECONDS, "async_creator_fn": sqlite_connection.connect},
    )

    @event.listens_for(engine.sync_engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # we begin transactions ourselves, below
        cursor = connection.cursor()
        for pragma in (
            VACUUM_PRAGMA,
            "journal_mode=WAL",
            f"synchronous={synchronous}",
            "foreign_keys=ON",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.execute(_busy_timeout(BUSY_SECONDS))
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Connection) -> None:
        raw = cast("StatementConnection", connection.connection.driver_connection)
        raw.begin("BEGIN IMMEDIATE" if connection.get_execution_options().get(_WRITE) else "BEGIN")

    return Database(engine, path.with_name(f"{path.name}-wal"), syncs_log=synchronous == "FULL")


def _busy_timeout(seconds: float) -> str:
    return f"PRAGMA busy_timeout={int(seconds * 1000)}"


def postgres_url(url: str) -> str:
    """The asyncpg driver's URL for `postgresql://` or `postgres://`."""
    parsed = make_url(url.replace("postgres://", "postgresql://", 1))
    if parsed.get_backend_name() != "postgresql":
        raise UnsupportedDatabaseError(
            f"DATABASE_URL={parsed.drivername}://... is not supported; use postgresql://, or leave it out for SQLite"
        )
    return parsed.set(drivername="postgresql+asyncpg").render_as_string(hide_password=False)


def open_postgres(url: str, *, pool_size: int = 10) -> Database:
    """Open a PostgreSQL database. Raises UnsupportedDatabaseError where the driver, an optional package, is not installed."""
    try:
        from asyncpg import PostgresError
    except ImportError:
        raise UnsupportedDatabaseError(
            f"DATABASE_URL names a PostgreSQL database; its driver comes with: {pip_install('postgres')}"
        ) from None
    engine = create_async_engine(
        postgres_url(url),
        json_serializer=dump_json,
        json_deserializer=load_json,
        pool_size=pool_size,
        max_overflow=20,
        pool_pre_ping=True,
        pool_timeout=BUSY_SECONDS,
        connect_args={"timeout": BUSY_SECONDS},
    )

    @event.listens_for(engine.sync_engine, "do_connect")
    def connect(dialect: Dialect, _: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        try:
            return dialect.connect(*arguments, **options)
        except (OSError, PostgresError) as error:
            raise DatabaseAwayError(f"the database cannot be reached: {error}; try again") from error

    return Database(engine)


def open_databases(data: Path, database_url: str | None) -> tuple[Database, Database]:
    """(control, metrics): two SQLite files under `data`, or one PostgreSQL database with a pool for each."""
    if database_url:
        return open_postgres(database_url), open_postgres(database_url, pool_size=5)
    return (
        open_sqlite(data / "paceline.db", synchronous="FULL"),
        open_sqlite(data / "metrics.db", synchronous="NORMAL"),
    )
