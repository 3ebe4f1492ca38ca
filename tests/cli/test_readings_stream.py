"""The readings of nodes as they come: each once, over lost connections, and refusals in words."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from websockets.sync.server import ServerConnection, serve

from paceline.cli import readings_stream
from paceline.cli.errors import CliError, UnreachableError
from paceline.cli.readings_stream import NodeReading, follow_readings
from tests.ports import free_port


@contextmanager
def coordinator(serving: Callable[[ServerConnection], None]) -> Iterator[Any]:
    """What follow_readings needs of a RestClient, for a coordinator that serves each stream so."""
    with serve(serving, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"127.0.0.1:{server.socket.getsockname()[1]}"
        yield client_of(url)
        server.shutdown()


def client_of(address: str) -> Any:
    settings = SimpleNamespace(url=f"http://{address}", key="pk_x")
    return SimpleNamespace(settings=settings, tls=None, stream_url=lambda path: f"ws://{address}/api/v1{path}")


def record(seq: int, value: float | None) -> str:
    data = {"node_id": "N1", "times": [100.0 + seq], "columns": {"gpu:0": {"power_watts": [value]}}}
    return json.dumps({"seq": seq, "topic": "readings", "type": "record", "data": data})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings_stream, "PATIENT_SECONDS", 0.01)
    monkeypatch.setattr(readings_stream, "PATIENT_RETRIES", 3)


def test_a_lost_connection_is_opened_again_behind_the_last_frame() -> None:
    asked: list[str] = []

    def serving(stream: ServerConnection) -> None:
        assert stream.request is not None
        asked.append(stream.request.path)
        assert stream.request.headers["Authorization"] == "Bearer pk_x"
        stream.send(json.dumps({"seq": 4, "topic": "readings", "type": "hello", "data": {"as_of_seq": 4}}))
        for seq in ((5, 6), (7,))[len(asked) - 1]:
            stream.send(record(seq, seq / 2))
        stream.close(1011)

    with coordinator(serving) as client:
        readings = follow_readings(client, "N1")
        found = [next(readings) for _ in range(3)]
        readings.close()
    assert found[0] == NodeReading("N1", 105.0, "gpu:0", "power_watts", 2.5)
    assert [each.value for each in found] == [2.5, 3.0, 3.5]
    assert asked[:2] == ["/api/v1/cluster/stream?node_id=N1", "/api/v1/cluster/stream?node_id=N1&after=6"]


def test_what_a_card_does_not_tell_is_no_reading() -> None:
    def serving(stream: ServerConnection) -> None:
        stream.send(record(1, None))
        stream.send(record(2, 7.0))

    with coordinator(serving) as client:
        readings = follow_readings(client, None)
        assert next(readings).value == 7.0
        readings.close()


@pytest.mark.parametrize(("code", "problem"), [(4401, "the key is not valid"), (4404, "there is no such node")])
def test_a_refusal_is_said_in_words(code: int, problem: str) -> None:
    with coordinator(lambda stream: stream.close(code)) as client, pytest.raises(CliError, match=f"sends no readings: {problem}"):
        next(follow_readings(client, "N1"))


def test_a_coordinator_that_stays_away_is_said_so() -> None:
    with pytest.raises(UnreachableError, match="sends no readings") as raised:
        next(follow_readings(client_of(f"127.0.0.1:{free_port()}"), None))
    assert raised.value.hint == "is it up, and does its proxy pass WebSockets?"
