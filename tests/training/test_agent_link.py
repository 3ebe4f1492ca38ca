"""The agent may be absent, new, or stuck: training does not notice."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.waiting import wait_until
from training.agent_link import AgentLink
from training.link import CheckpointRequest, Joined, PauseRequest, RankHello

TIMEOUT_SECONDS = 10.0
HELLO = RankHello(job_id="job", generation=3, rank=1, pid=42)


def listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.settimeout(TIMEOUT_SECONDS)
    listener.bind(str(path))
    listener.listen()
    return listener


def accept(listener: socket.socket) -> tuple[socket.socket, Any]:
    connection, _ = listener.accept()
    connection.settimeout(TIMEOUT_SECONDS)
    return connection, connection.makefile("rb")


def read(lines: Any) -> dict[str, Any]:
    return dict(msgspec.json.decode(lines.readline()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.sock"


@pytest.fixture
def link(path: Path) -> Iterator[AgentLink]:
    link = AgentLink(str(path), HELLO)
    yield link
    link.close()


def test_requests_arrive(path: Path, link: AgentLink) -> None:
    with listen(path) as listener:
        connection, lines = accept(listener)
        with connection, lines:
            assert read(lines) == {"type": "hello", "job_id": "job", "generation": 3, "rank": 1, "pid": 42}
            for request in (PauseRequest(), PauseRequest(), CheckpointRequest()):  # twice is harmless
                connection.sendall(msgspec.json.encode(request) + b"\n")
            wait_until(lambda: link.pause_wanted and link.checkpoint_wanted, "both requests", seconds=TIMEOUT_SECONDS)
            link.checkpoint_done()
            assert not link.checkpoint_wanted


def test_a_new_agent_is_told_everything_again(path: Path, link: AgentLink) -> None:
    link.joined(Joined(step=5, total_steps=9))
    for _ in range(2):  # the agent is killed, another one comes
        with listen(path) as listener:
            connection, lines = accept(listener)
            with connection, lines:
                assert read(lines)["type"] == "hello"
                assert read(lines) == {"type": "joined", "step": 5, "total_steps": 9}


def test_an_agent_that_never_reads_blocks_nothing(path: Path, link: AgentLink) -> None:
    with listen(path) as listener:
        connection, lines = accept(listener)
        with connection, lines:
            read(lines)
            started = time.monotonic()
            for step in range(50_000):  # megabytes more than any socket buffer holds
                link.progress(step)
            assert time.monotonic() - started < TIMEOUT_SECONDS


def test_nonsense_from_the_agent_ends_that_connection_only(path: Path, link: AgentLink) -> None:
    with listen(path) as listener:
        connection, lines = accept(listener)
        with connection, lines:
            connection.sendall(b'{"type": "unheard of"}\n')
            again, more_lines = accept(listener)
            with again, more_lines:
                assert read(more_lines)["type"] == "hello"
                again.sendall(msgspec.json.encode(PauseRequest()) + b"\n")
                wait_until(lambda: link.pause_wanted, "the request", seconds=TIMEOUT_SECONDS)


def test_without_an_agent_everything_is_quiet(link: AgentLink) -> None:
    link.joined(Joined(step=0, total_steps=1))
    link.progress(1)
    assert not link.pause_wanted
