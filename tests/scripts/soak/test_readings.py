"""Databases are read while a coordinator writes them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from scripts.soak.readings import databases


def test_a_history_is_told_for_each_job(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "paceline.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE jobs (id TEXT)")
        found = databases(tmp_path)
        assert list(found) == ["paceline.db.mb"], "no job, no share"
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO jobs VALUES (?)", [("a",), ("b",)])
        assert list(databases(tmp_path)) == ["paceline.db.mb"], "a writer holds nobody up"
        connection.execute("COMMIT")
        found = databases(tmp_path)
    assert found["paceline.db.kb_per_job"] == found["paceline.db.mb"] * 1024 / 2


def test_what_is_not_there_yet_has_no_size(tmp_path: Path) -> None:
    assert databases(tmp_path) == {}
