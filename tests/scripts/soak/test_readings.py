"""Databases are read while a coordinator writes them; answers are told apart from refusals."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from scripts.soak.readings import LOOP_PATH, Prober, databases
from tests.waiting import wait_until


def test_a_history_is_told_for_each_job(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "paceline.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE jobs (id TEXT)")
        assert list(databases(tmp_path)) == ["paceline.db.mb", "paceline.db-wal.mb"], "no job, no share"
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO jobs VALUES (?)", [("a",), ("b",)])
        assert list(databases(tmp_path)) == ["paceline.db.mb", "paceline.db-wal.mb"], "a writer holds nobody up"
        connection.execute("COMMIT")
        found = databases(tmp_path)
    assert found["paceline.db.kb_per_job"] == found["paceline.db.mb"] * 1024 / 2


def test_what_is_not_there_yet_has_no_size(tmp_path: Path) -> None:
    assert databases(tmp_path) == {}


class Refusing(BaseHTTPRequestHandler):
    """Answers that the coordinator is busy, but for the look at its loop."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == LOOP_PATH else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed into the tests' output."""


def test_a_refused_answer_is_counted_and_is_no_time_of_an_answer() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        prober = Prober(f"http://127.0.0.1:{server.server_port}", "key", ("/training/jobs",), every=0.001)
        prober.start()
        wait_until(lambda: prober.refused >= 3, "three refused answers", seconds=30)
        prober.stop()
        server.shutdown()
    assert list(prober.take()) == ["loop_p99_ms"]
