"""Copies of the two SQLite files, taken at one moment while the coordinator goes on; and their way back.

A backup is a folder: `paceline.db`, `metrics.db`, and a manifest with their hashes and the versions that made them. Copying the files
themselves would miss what is still in the write-ahead log, and the two belong together: what is marked as stored in one is in the other.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from paceline.db.copies import SCRATCH, TURN_SECONDS, copy, opened
from paceline.db.errors import (
    BackupDamagedError,
    BackupExistsError,
    BackupFailedError,
    DatabaseBusyError,
    MigrationError,
    UnsupportedDatabaseError,
)
from paceline.db.fencing import fence_generations
from paceline.db.folder_lock import folder_lock
from paceline.db.migrate import CONTROL, METRICS, MigrationLine
from paceline.monitoring.files import make_folders, sync_folder, write_durably

MANIFEST = "backup.json"
FORMAT = 1
#: In the order in which their writers' turns are taken.
FILES: Mapping[str, MigrationLine] = {"paceline.db": CONTROL, "metrics.db": METRICS}


class BackedUp(msgspec.Struct, frozen=True):
    bytes: int
    sha256: str
    revision: str


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    created: str
    sqlite: str = sqlite3.sqlite_version
    files: dict[str, BackedUp]


def require_sqlite(database_url: str | None, way_out: str) -> None:
    """Raises UnsupportedDatabaseError for PostgreSQL, which has tools of its own."""
    if database_url:
        raise UnsupportedDatabaseError(f"DATABASE_URL names a PostgreSQL database, which has its own tools for this: {way_out}")


def back_up(data: Path, folder: Path) -> BackupManifest:
    """Copy both databases into the new folder `folder`, whole or not at all; readable to its owner alone. A coordinator may be running."""
    if folder.exists():
        raise BackupExistsError(f"{folder} is there already; name a folder that does not exist yet")
    require_databases(data)
    scratch = folder.with_name(folder.name + SCRATCH)
    shutil.rmtree(scratch, ignore_errors=True)
    make_folders(scratch.parent)
    scratch.mkdir(mode=0o700)
    try:
        with at_one_moment(data) as sources:
            for name, source in sources.items():
                copy(source, scratch / name)
        manifest = BackupManifest(created=datetime.now(UTC).isoformat(), files={name: describe(scratch / name) for name in FILES})
        write_durably(scratch / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2), mode=0o600)
        scratch.rename(folder)
        sync_folder(folder.parent)
    except sqlite3.OperationalError as error:
        free, needed = shutil.disk_usage(scratch.parent).free, sum((data / name).stat().st_size for name in FILES)
        raise BackupFailedError(
            f"{folder} cannot be written: {error}; the databases have {needed / 1e6:,.1f} MB, and {free / 1e6:,.1f} MB are free there"
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return manifest


def require_databases(data: Path) -> None:
    missing = [name for name in FILES if not (data / name).is_file()]
    if missing:
        raise BackupDamagedError(
            f"{data / missing[0]} is not there: no coordinator has run on this data folder; name another one with --data"
        )


@contextlib.contextmanager
def at_one_moment(data: Path) -> Iterator[dict[str, sqlite3.Connection]]:
    """Readers of both files that see the same moment: they begin while neither file can be written to."""
    with contextlib.ExitStack() as stack:
        readers = {name: stack.enter_context(opened(data / name)) for name in FILES}
        writers = [stack.enter_context(opened(data / name)) for name in FILES]
        try:
            for writer in writers:
                writer.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            raise DatabaseBusyError(f"{data}: another process has been writing for {TURN_SECONDS:.0f} s ({error}); try again") from error
        for reader in readers.values():
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM sqlite_master").fetchone()  # a snapshot begins with the first read
        for writer in writers:
            writer.execute("ROLLBACK")
        yield readers


def describe(path: Path) -> BackedUp:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with opened(path, mode="ro") as connection:
        revision = revision_of(connection, FILES[path.name])
    return BackedUp(path.stat().st_size, digest, revision)


def revision_of(connection: sqlite3.Connection, schema: MigrationLine) -> str:
    """The migration that the file has; empty: none."""
    try:
        row = connection.execute(f"SELECT version_num FROM {schema.version_table}").fetchone()
    except sqlite3.DatabaseError:
        return ""
    return str(row[0]) if row else ""


# --- is it well


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check. `problems` is empty for a healthy file."""

    file: str
    bytes: int
    revision: str
    newest: str
    problems: list[str]


def check(data: Path) -> list[Health]:
    """Read every page of both files; a coordinator may be running."""
    require_databases(data)
    return [_check_file(data / name, schema) for name, schema in FILES.items()]


def check_backup(folder: Path) -> list[Health]:
    """Read every page of a backup, and leave it as it is. Raises BackupDamagedError, MigrationError for one that could not be restored."""
    read_manifest(folder)
    return [_check_file(folder / name, schema, mode="ro") for name, schema in FILES.items()]


def _check_file(path: Path, schema: MigrationLine, mode: str = "rw") -> Health:
    with opened(path, mode) as connection:
        try:
            problems = [f"integrity: {row[0]}" for row in connection.execute("PRAGMA integrity_check(10)") if row[0] != "ok"]
            orphans = connection.execute("PRAGMA foreign_key_check").fetchmany(10)
            problems += [f"foreign keys: row {row[1]} of {row[0]} refers to a row of {row[2]} that is not there" for row in orphans]
        except sqlite3.DatabaseError as error:
            problems = [f"integrity: {error}"]
        revision = revision_of(connection, schema)
    newest = schema.newest or ""
    if not schema.knows(revision):
        problems.append(f"migrations: revision {revision} is of a newer version of Paceline")
    return Health(file=path.name, bytes=path.stat().st_size, revision=revision, newest=newest, problems=problems)


# --- the way back


def restore(folder: Path, data: Path, *, force: bool) -> Path | None:
    """Put a backup into a data folder that no coordinator uses. With `force` the databases that are there are moved aside; returns where to.
    Generations that were handed out since the backup are fenced off: see `db.fencing`.

    Checkpoints and agents' folders stay where they are: the records name them by their paths.
    """
    manifest = read_manifest(folder)
    with folder_lock(data, patience=0.0):
        drop_fresh(data)
        present = sorted(path for name in FILES for path in data.glob(f"{name}*"))
        if present and not force:
            raise BackupExistsError(f"{data} holds databases already ({present[0].name}); --force moves them aside, or name another --data")
        try:
            fresh = [bring(folder, data, name) for name in manifest.files]
            for path in fresh:
                if FILES[path.stem] is CONTROL:
                    fence(path)
            aside = move_aside(data, present)
            for path in fresh:
                path.rename(path.with_suffix(""))
            sync_folder(data)
        except (sqlite3.OperationalError, OperationalError) as error:
            free, needed = shutil.disk_usage(data).free, sum(told.bytes for told in manifest.files.values())
            raise BackupFailedError(
                f"{data} cannot be written: {error}; the backup has {needed / 1e6:,.1f} MB, and {free / 1e6:,.1f} MB are free there. "
                "The databases that were there still are"
            ) from error
        finally:
            drop_fresh(data)
    return aside


def drop_fresh(data: Path) -> None:
    """Delete copies that a restore has brought and not put in place, also those of one that was cut off."""
    for name in FILES:
        for path in data.glob(f"{name}{SCRATCH}*"):
            path.unlink(missing_ok=True)


def read_manifest(folder: Path) -> BackupManifest:
    """The manifest of a backup that is whole and that this version can use. Raises BackupDamagedError, MigrationError."""
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=BackupManifest)
    except (OSError, msgspec.DecodeError) as error:
        raise BackupDamagedError(f"{folder} is no backup: {MANIFEST} cannot be read ({error})") from error
    if manifest.format != FORMAT or manifest.files.keys() != FILES.keys():
        raise BackupDamagedError(
            f"{folder / MANIFEST} has format {manifest.format} with {', '.join(manifest.files)}; this version reads {FORMAT}"
        )
    for name, told in manifest.files.items():
        try:
            found = describe(folder / name)
        except (OSError, sqlite3.Error) as error:
            raise BackupDamagedError(f"{folder / name} cannot be read ({error}); use another backup") from error
        if found != told:
            raise BackupDamagedError(f"{folder / name} is damaged: it does not match the hash in {MANIFEST}; use another backup")
        if not FILES[name].knows(told.revision):
            raise MigrationError(f"{folder / name} was written by a newer version (revision {told.revision}); restore it with that version")
    return manifest


def bring(folder: Path, data: Path, name: str) -> Path:
    """Copy a file into the data folder, under a name that no coordinator opens."""
    path = data / f"{name}{SCRATCH}"
    with opened(folder / name, mode="ro") as source:
        copy(source, path)
    return path


def fence(path: Path) -> None:
    """Fence off generations in a copy of the control database."""
    engine = create_engine(f"sqlite:///{path}")
    try:
        with engine.begin() as connection:
            fence_generations(connection, datetime.now(UTC))
    finally:
        engine.dispose()


def move_aside(data: Path, present: list[Path]) -> Path | None:
    """Move the databases aside with their logs, so that they can be put back as they were."""
    if not present:
        return None
    aside = data / f"replaced-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}"
    aside.mkdir(mode=0o700)
    for path in present:
        path.rename(aside / path.name)
    sync_folder(aside)
    return aside
