"""A backup is of one moment, private, and comes back whole or not at all."""

from __future__ import annotations

import itertools
import json
import resource
import shutil
import sqlite3
import stat
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import Connection

from paceline.db import backup, copies
from paceline.db.copies import COPIES, KEPT_COPIES
from paceline.db.errors import (
    BackupDamagedError,
    BackupExistsError,
    BackupFailedError,
    FolderInUseError,
    MigrationError,
    UnsupportedDatabaseError,
)
from paceline.db.folder_lock import folder_lock
from paceline.db.migrate import CONTROL, upgrade_all
from paceline.db.session import open_databases


@pytest.fixture
def data(sqlite_template: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    shutil.copytree(sqlite_template, folder)
    return folder


def put(data: Path, number: int) -> None:
    """The same number into both databases, control first, as two commits: no backup may hold the second without the first."""
    for name in backup.FILES:
        with sqlite3.connect(data / name, timeout=30) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS numbers (number INTEGER)")
            connection.execute("INSERT INTO numbers VALUES (?)", (number,))
        connection.close()


def newest(path: Path) -> int:
    connection = sqlite3.connect(path)
    found: int = connection.execute("SELECT coalesce(max(number), 0) FROM numbers").fetchone()[0]
    connection.close()
    return found


def test_both_databases_are_of_one_moment_while_somebody_writes(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(data, 1)
    numbers, copy_file = itertools.count(2), copies.copy

    def copy_and_write(source: sqlite3.Connection, target: Path) -> None:
        put(data, next(numbers))
        copy_file(source, target)
        put(data, next(numbers))

    monkeypatch.setattr(backup, "copy", copy_and_write)
    backup.back_up(data, tmp_path / "kept")
    assert [newest(data / name) for name in backup.FILES] == [5, 5]
    assert [newest(tmp_path / "kept" / name) for name in backup.FILES] == [1, 1]


def test_a_backup_comes_back_and_only_its_owner_can_read_it(data: Path, tmp_path: Path) -> None:
    put(data, 7)
    backup.back_up(data, tmp_path / "kept")
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {*backup.FILES, backup.MANIFEST}
    for path in (tmp_path / "kept", *(tmp_path / "kept").iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    put(data, 8)
    with pytest.raises(BackupExistsError, match="--force moves them aside"):
        backup.restore(tmp_path / "kept", data, force=False)
    aside = backup.restore(tmp_path / "kept", data, force=True)
    assert aside is not None
    assert [newest(folder / name) for folder in (data, aside) for name in backup.FILES] == [7, 7, 8, 8]
    backup.restore(tmp_path / "kept", tmp_path / "elsewhere", force=False)
    assert newest(tmp_path / "elsewhere" / "paceline.db") == 7
    assert not any(each.problems for each in backup.check(tmp_path / "elsewhere"))


def test_a_backup_is_never_overwritten(data: Path, tmp_path: Path) -> None:
    backup.back_up(data, tmp_path / "kept")
    with pytest.raises(BackupExistsError, match="does not exist yet"):
        backup.back_up(data, tmp_path / "kept")
    with pytest.raises(BackupDamagedError, match="no coordinator has run on this data folder"):
        backup.back_up(tmp_path / "nowhere", tmp_path / "other")


@pytest.mark.parametrize("bytes", [8 << 10, 40 << 10])
def test_a_backup_that_does_not_fit_says_so_and_leaves_nothing(data: Path, tmp_path: Path, bytes: int) -> None:
    """SQLite's file of shared memory, or only the copy."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes, hard))  # as a full disk would, it makes writing fail
    try:
        with pytest.raises(BackupFailedError, match=r"cannot be written: .*; the databases have .* MB, and .* MB are free there"):
            backup.back_up(data, tmp_path / "kept")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.glob("kept*"))


@pytest.mark.parametrize(
    "left", [("paceline.db.tmp",), ("metrics.db.tmp",), ("paceline.db.tmp", "metrics.db.tmp", "metrics.db.tmp-journal")]
)
def test_a_restore_after_one_that_was_cut_off_puts_both_databases_in_place(data: Path, tmp_path: Path, left: tuple[str, ...]) -> None:
    """The fresh copies were moved aside with the old databases: nothing was left, and the next start made empty ones."""
    put(data, 7)
    backup.back_up(data, tmp_path / "kept")
    put(data, 8)
    for folder in (data, tmp_path / "new"):
        folder.mkdir(exist_ok=True)
        for name in left:
            (folder / name).write_bytes(b"half a copy")
    aside = backup.restore(tmp_path / "kept", data, force=True)
    assert aside is not None
    assert backup.restore(tmp_path / "kept", tmp_path / "new", force=False) is None
    assert [newest(folder / name) for folder in (data, tmp_path / "new", aside) for name in backup.FILES] == [7, 7, 7, 7, 8, 8]
    assert not [path for folder in (data, tmp_path / "new", aside) for path in folder.glob("*.tmp*")]


def test_a_restore_that_does_not_fit_says_so_and_moves_nothing(data: Path, tmp_path: Path) -> None:
    put(data, 7)
    backup.back_up(data, tmp_path / "kept")
    put(data, 8)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 10, hard))
    try:
        with pytest.raises(BackupFailedError, match=r"cannot be written: .*; the backup has .* MB, and .* MB are free there"):
            backup.restore(tmp_path / "kept", data, force=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [newest(data / name) for name in backup.FILES] == [8, 8]
    assert not [*data.glob("*.tmp*"), *data.glob("replaced-*")]


def test_a_damaged_backup_is_refused_before_anything_is_moved(data: Path, tmp_path: Path) -> None:
    backup.back_up(data, tmp_path / "kept")
    content = bytearray((tmp_path / "kept" / "metrics.db").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "kept" / "metrics.db").write_bytes(content)
    put(data, 9)
    with pytest.raises(BackupDamagedError, match="does not match the hash"):
        backup.restore(tmp_path / "kept", data, force=True)
    assert newest(data / "paceline.db") == 9


def test_a_backup_of_a_newer_version_is_refused(data: Path, tmp_path: Path) -> None:
    with sqlite3.connect(data / "paceline.db") as connection:
        connection.execute(f"UPDATE {CONTROL.version_table} SET version_num = 'control_9999'")
    connection.close()
    backup.back_up(data, tmp_path / "kept")
    with pytest.raises(MigrationError, match=r"newer version \(revision control_9999\)"):
        backup.restore(tmp_path / "kept", tmp_path / "new", force=False)
    (control, _) = backup.check(data)
    assert "newer version" in control.problems[0]


def test_a_running_coordinators_folder_is_not_restored_into(data: Path, tmp_path: Path) -> None:
    backup.back_up(data, tmp_path / "kept")
    with folder_lock(data), pytest.raises(FolderInUseError, match=r"process \d+"):
        backup.restore(tmp_path / "kept", data, force=True)


def test_the_check_names_what_is_wrong(data: Path) -> None:
    assert [each.problems for each in backup.check(data)] == [[], []]
    connection = sqlite3.connect(data / "paceline.db")
    connection.execute(
        "INSERT INTO sessions (hash, user_id, csrf_token, created_at, expires_at) VALUES ('hash', 'nobody', 'csrf', '2026-01-01', '2026-01-01')"
    )
    connection.commit()
    connection.close()
    (control, _) = backup.check(data)
    assert control.problems == ["foreign keys: row 1 of sessions refers to a row of users that is not there"]


def test_the_check_of_a_backup_finds_damage_and_leaves_it_as_it_is(data: Path, tmp_path: Path) -> None:
    backup.back_up(data, tmp_path / "kept")
    before = {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()}
    assert [(each.file, each.problems) for each in backup.check_backup(tmp_path / "kept")] == [("paceline.db", []), ("metrics.db", [])]
    assert {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()} == before
    with open(tmp_path / "kept" / "metrics.db", "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)
    with pytest.raises(BackupDamagedError, match="is damaged"):
        backup.check_backup(tmp_path / "kept")
    with pytest.raises(BackupDamagedError, match="is no backup"):
        backup.check_backup(data)


def test_postgresql_is_told_its_own_tool() -> None:
    with pytest.raises(UnsupportedDatabaseError, match="pg_dump"):
        backup.require_sqlite("postgresql://x/y", "pg_dump")


async def test_the_control_database_is_copied_before_each_migration_and_the_last_three_are_kept(data: Path) -> None:
    control, metrics = open_databases(data, None)
    older = ""
    for number in range(KEPT_COPIES + 2):
        async with control.write() as session:
            older = await (await session.connection()).run_sync(downgrade)
        put(data, number)
        await upgrade_all(control, metrics)
        await upgrade_all(control, metrics)  # nothing to do: nothing to copy
    await control.close()
    await metrics.close()
    copies = sorted((data / COPIES).iterdir())
    assert [newest(path) for path in copies] == [2, 3, 4]
    assert all(path.name.endswith(f"-{older}.db") for path in copies)


@pytest.mark.parametrize("damaged", [True, False])
def test_copies_that_fail_before_a_migration_leave_nothing_and_push_no_good_one_out(data: Path, damaged: bool) -> None:
    """The service manager starts again each second, and each start left another copy until the disk was full."""
    kept = copies.copy_before_migration(data / "paceline.db", "older")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if damaged:
        with open(data / "paceline.db", "r+b") as file:
            file.seek(2 * 4096)
            file.write(b"\xff" * 4 * 4096)
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40 << 10, hard))
    try:
        for _ in range(KEPT_COPIES + 2):
            with pytest.raises((sqlite3.DatabaseError, BackupDamagedError)):
                copies.copy_before_migration(data / "paceline.db", "older")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((data / COPIES).iterdir()) == [kept]


def test_half_a_copy_of_a_process_that_was_killed_goes_with_the_next(data: Path) -> None:
    (data / COPIES).mkdir()
    (data / COPIES / "paceline.db.tmp").write_bytes(b"half a copy")
    copies.copy_before_migration(data / "paceline.db", "older")
    assert [path.suffix for path in (data / COPIES).iterdir()] == [".db"]


def downgrade(connection: Connection) -> str:
    """By one migration; the name of the one that is left."""
    command.downgrade(CONTROL.config(connection), "-1")
    return str(CONTROL.revision_of(connection))


def test_the_manifest_names_the_versions(data: Path, tmp_path: Path) -> None:
    backup.back_up(data, tmp_path / "kept")
    manifest = json.loads((tmp_path / "kept" / backup.MANIFEST).read_bytes())
    assert manifest["files"]["paceline.db"]["revision"] == CONTROL.newest
    assert manifest["sqlite"] == sqlite3.sqlite_version
