"""What a node fetches for itself: once, whole, checked, and refused with the way out."""

from __future__ import annotations

import hashlib
import multiprocessing
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from paceline.training.data.fetched import Remote, fetch
from paceline.training.errors import InvalidInputError

CONTENT = b"pixels" * 100_000
RANKS = 4


class Counting(BaseHTTPRequestHandler):
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, *ignored: object) -> None:
        """Say nothing."""


def test_many_ranks_of_a_node_fetch_a_file_once(tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Counting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    remote = Remote(f"http://127.0.0.1:{server.server_port}/set.bin", hashlib.md5(CONTENT).hexdigest())
    Counting.asked = 0
    try:
        with multiprocessing.get_context("fork").Pool(RANKS) as ranks:
            found = ranks.starmap_async(fetch, [([remote], tmp_path, "")] * RANKS).get(timeout=60)
    finally:
        server.shutdown()
        server.server_close()
    assert found == [[tmp_path / "set.bin"]] * RANKS
    assert Counting.asked == 1
    assert (tmp_path / "set.bin").read_bytes() == CONTENT
    assert {path.name for path in tmp_path.iterdir()} == {"set.bin", ".lock"}


@pytest.mark.parametrize(("md5", "problem"), [("0" * 32, "came with MD5 .*, not 0000"), (None, "cannot be fetched")])
def test_what_is_damaged_or_not_there_is_refused_and_leaves_nothing(md5: str | None, problem: str, tmp_path: Path) -> None:
    source = tmp_path / "source.bin"
    if md5 is not None:
        source.write_bytes(CONTENT)
    with pytest.raises(InvalidInputError, match=rf"{problem}.*; set data.path"):
        fetch([Remote(source.as_uri(), md5 or "")], tmp_path / "cache", "set data.path")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_ranks_that_start_together_share_a_failure_and_later_ones_try_again(tmp_path: Path) -> None:
    """Each tried for itself: where the network came and went, some had the data and others the fallback."""
    source = tmp_path / "source.bin"
    remote = Remote(source.as_uri(), hashlib.md5(CONTENT).hexdigest())
    with pytest.raises(InvalidInputError, match="cannot be fetched"):
        fetch([remote], tmp_path / "cache", "set data.path", now=lambda: 100.0)
    source.write_bytes(CONTENT)
    with pytest.raises(InvalidInputError, match=r"cannot be fetched .*; set data.path"):
        fetch([remote], tmp_path / "cache", "set data.path", now=lambda: 105.0)
    (found,) = fetch([remote], tmp_path / "cache", "set data.path", now=lambda: 120.0)
    assert found.read_bytes() == CONTENT
