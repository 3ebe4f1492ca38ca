"""Connections whose peers leave something undone, at a real server."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from paceline.api.middleware.connections import GuardedProtocol
from tests.ports import HOST
from tests.served import Served, served

LIMIT = 12
#: The large answer is taken, or given up.
answered = threading.Event()


class Impatient(GuardedProtocol):
    head_seconds = 0.5
    stall_seconds = 0.5
    max_head_bytes = 8192


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers without reading a body; `/large` with more than any buffer takes, `/slow` after longer than a head may take."""
    if scope["type"] == "lifespan":
        return
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await receive()
        await send({"type": "websocket.send", "text": "still here"})
        return
    if scope["path"] == "/slow":
        await receive()
        await asyncio.sleep(2 * Impatient.head_seconds)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(2000 if scope["path"] == "/large" else 0):
        await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
    await send({"type": "http.response.body", "body": b"ok"})
    if scope["path"] == "/large":
        answered.set()


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(app, http=Impatient, limit_concurrency=LIMIT, timeout_keep_alive=1) as found:
        yield found


@pytest.fixture(scope="module")
def patient_server() -> Iterator[Served]:
    """Closes no connection for being idle while a test on a busy machine opens others."""
    with served(app, http=GuardedProtocol, limit_concurrency=LIMIT, timeout_keep_alive=60) as found:
        yield found


def opened(server: Served, said: bytes = b"") -> socket.socket:
    connection = socket.create_connection((HOST, server.port), timeout=5)
    connection.sendall(said)
    return connection


def rest_of(connection: socket.socket) -> bytes:
    """Until the server closes; a TimeoutError where it never does."""
    said = b""
    with connection:
        try:
            while piece := connection.recv(65536):
                said += piece
        except ConnectionResetError:
            pass
    return said


@pytest.mark.parametrize(
    "said", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-", b"\r\n"], ids=["nothing", "half of the headers", "an empty line"]
)
def test_a_connection_that_never_finishes_its_headers_is_closed(server: Served, said: bytes) -> None:
    assert rest_of(opened(server, said)) == b""


def trickle(connection: socket.socket) -> None:
    """A byte now and then, until the connection is closed or five seconds are over."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        connection.sendall(b"a")
        time.sleep(0.05)


def test_a_byte_now_and_then_does_not_keep_a_connection_open(server: Served) -> None:
    connection = opened(server, b"GET / HTTP/1.1\r\n")
    with connection, pytest.raises(OSError, match=r"Broken pipe|reset"):
        trickle(connection)


def test_the_second_request_of_a_connection_has_no_more_time_than_the_first(server: Served) -> None:
    connection = opened(server, b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT")
    said = rest_of(connection)
    assert said.startswith(b"HTTP/1.1 200")
    assert said.count(b"HTTP/1.1") == 1


def test_the_rest_of_an_unread_body_is_not_waited_for(server: Served) -> None:
    connection = opened(server, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
    with connection, pytest.raises(OSError, match=r"Broken pipe|reset"):
        trickle(connection)


@pytest.mark.parametrize("head", [b"X-Long: " + b"a" * 200_000, b"X: y\r\n" * 40_000], ids=["one", "many"])
def test_headers_have_a_limit(server: Served, head: bytes) -> None:
    connection = socket.create_connection((HOST, server.port), timeout=5)
    sender = threading.Thread(target=_send, args=(connection, b"GET / HTTP/1.1\r\n" + head))
    sender.start()
    assert rest_of(connection)[:12] in (b"HTTP/1.1 431", b"")  # what is unread may reset the connection before its answer is read
    sender.join(5)


def _send(connection: socket.socket, said: bytes) -> None:
    try:
        connection.sendall(said)
    except OSError:
        return


def test_a_peer_that_takes_nothing_is_cut_off(server: Served) -> None:
    with opened(server, b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n"):
        assert answered.wait(5)


def test_a_long_answer_is_not_taken_for_silence(server: Served) -> None:
    assert httpx.get(f"{server.url}/slow", timeout=5).text == "ok"


def test_a_websocket_outlives_the_limits_of_a_head(server: Served) -> None:
    with connect(f"ws://{HOST}:{server.port}/") as channel:
        threading.Event().wait(2 * Impatient.head_seconds)
        channel.send("hello")
        assert channel.recv(timeout=5) == "still here"


def test_a_thousand_silent_connections_lock_no_client_out(server: Served) -> None:
    silent = [opened(server) for _ in range(5 * LIMIT)]
    try:
        for _ in range(3):
            assert httpx.get(server.url, timeout=5).text == "ok"
    finally:
        for connection in silent:
            connection.close()


def answer_on(connection: socket.socket) -> bytes:
    """The status of one more request on a kept connection; empty: it is closed."""
    try:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        said = b""
        while not said.endswith(b"0\r\n\r\n") and (piece := connection.recv(65536)):
            said += piece
    except OSError:
        return b""
    return said[9:12]


def test_silent_connections_do_not_push_out_one_that_is_kept_between_two_requests(patient_server: Served) -> None:
    kept = opened(patient_server)
    assert answer_on(kept) == b"200"
    connections = [kept, *(opened(patient_server) for _ in range(2 * LIMIT))]
    try:
        assert httpx.get(patient_server.url, timeout=5).text == "ok"
        assert answer_on(kept) == b"200"
    finally:
        for connection in connections:
            connection.close()


def test_of_kept_connections_the_one_without_a_request_for_longest_makes_room(patient_server: Served) -> None:
    kept = [opened(patient_server) for _ in range(LIMIT - 1)]
    try:
        assert {answer_on(connection) for connection in [*kept, kept[0]]} == {b"200"}
        assert httpx.get(patient_server.url, timeout=5).text == "ok"
        assert [answer_on(connection) for connection in kept[:2]] == [b"200", b""]
    finally:
        for connection in kept:
            connection.close()
