"""Following a log over a real WebSocket, and without one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
from websockets.sync.server import Server, ServerConnection, serve

from paceline.cli.client import RestClient
from paceline.cli.follow import LogFilter, StreamNews, follow_log
from paceline.cli.settings import ClientSettings, Setting
from tests.cli.fake_coordinator import API, Answer, FakeCoordinator, Request, line

WAIT_S = 10


@pytest.fixture
def client(coordinator: FakeCoordinator) -> Iterator[RestClient]:
    with RestClient(ClientSettings(Setting(coordinator.url, "test"), Setting("pk_test", "test"))) as client:
        yield client


def test_follows_by_cursor_until_the_log_is_complete(client: RestClient, coordinator: FakeCoordinator) -> None:
    stored = [line(seq, f"line {seq}") for seq in range(1, 6)]
    asked = threading.Event()

    def logs(request: Request) -> Answer:
        after = int(request.query["after"])
        visible = stored if asked.is_set() else stored[:3]
        if after == 3:
            asked.set()  # the rest comes once the first part was read
        items = [entry for entry in visible if entry["seq"] > after]
        return Answer(200, {"items": items, "next_after": items[-1]["seq"] if items else after, "complete": visible is stored})

    coordinator.handlers["GET", f"{API}/training/jobs/J/logs"] = logs
    texts = [entry.text for entry in follow_log(client, "J", 0, LogFilter())]
    assert texts == [f"line {seq}" for seq in range(1, 6)]


@pytest.fixture
def stream() -> Iterator[tuple[Server, threading.Event, list[str]]]:
    """A log stream that says hello and, when told to, one line."""
    tell, asked = threading.Event(), []

    def speak(connection: ServerConnection) -> None:
        assert connection.request is not None
        asked.append(f"{connection.request.path} {connection.request.headers['Authorization']}")
        connection.send(json.dumps({"seq": 0, "topic": "logs", "type": "hello", "data": {}}))
        if tell.wait(WAIT_S):
            connection.send(json.dumps({"seq": 8, "topic": "logs", "type": "line", "data": line(8, "new")}))
        for _ in connection:
            return

    with serve(speak, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server, tell, asked
        server.shutdown()
        thread.join(WAIT_S)


def test_a_line_on_the_stream_ends_the_wait_early(
    stream: tuple[Server, threading.Event, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, tell, asked = stream
    for name in ("FIRST_POLL_S", "POLL_S"):
        monkeypatch.setattr(f"paceline.cli.follow.{name}", float(WAIT_S * 3))
    port = server.socket.getsockname()[1]
    with RestClient(ClientSettings(Setting(f"http://127.0.0.1:{port}", "test"), Setting("pk_test", "test"))) as client:
        news = StreamNews(client, "/training/jobs/J/logs/stream")
        waiter = threading.Thread(target=news.wait, args=(7,))
        waiter.start()
        tell.set()
        waiter.join(WAIT_S)
        assert not waiter.is_alive()
        news.close()
    assert asked == ["/api/v1/training/jobs/J/logs/stream?after=7 Bearer pk_test"]
