"""Copies of one SQLite file, including its write-ahead log, while other processes use it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from paceline.db.errors import BackupDamagedError
from paceline.monitoring.files import sync_file, sync_folder

#: How long a writer's turn is waited for.
TURN_SECONDS = 30.0
SCRATCH = ".tmp"
#: Copies of the control database that are kept, and where.
KEPT_COPIES = 3
COPIES = "before-migrations"


@contextlib.contextmanager
def opened(path: Path, mode: str = "rw") -> Iterator[sqlite3.Connection]:
    """An open SQLite file, which is never created; transactions are begun by hand."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=TURN_SECONDS, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def copy(source: sqlite3.Connection, path: Path) -> None:
    """Copy a database to one file without a log beside it, fsynced, mode 0600. What fails leaves no file."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as target:
            source.backup(target)
            target.execute("PRAGMA journal_mode=DELETE").fetchone()
            problems = [row[0] for row in target.execute("PRAGMA quick_check(3)") if row[0] != "ok"]
        if problems:
            raise BackupDamagedError(
                f"the copy of {path.name.removesuffix(SCRATCH)} is damaged, so the database is: {'; '.join(problems)}; see 'paceline db check'"
            )
        sync_file(path)
    except BaseException:
        for left in path.parent.glob(f"{path.name}*"):  # with its journal
            left.unlink(missing_ok=True)
        raise


def copy_before_migration(path: Path, revision: str) -> Path:
    """Copy the control database as `revision` has left it. The migrating process holds the writer's turn, so this is the last state of
    the old version. The copy gets its name when it is whole: of processes that are killed meanwhile half a copy is left at most."""
    folder = path.parent / COPIES
    folder.mkdir(mode=0o700, exist_ok=True)
    fresh, target = folder / f"{path.name}{SCRATCH}", folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}-{revision}.db"
    for left in folder.glob(f"{fresh.name}*"):
        left.unlink(missing_ok=True)
    with opened(path) as source:
        copy(source, fresh)
    fresh.rename(target)
    for old in sorted(folder.glob("*.db"))[:-KEPT_COPIES]:
        old.unlink(missing_ok=True)
    sync_folder(folder)
    return target
