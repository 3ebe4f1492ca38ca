"""The coordinator's sockets: one for each address that was asked for, and no other."""

from __future__ import annotations

import asyncio
import signal
import socket

import pytest

from paceline.api import serve
from paceline.api.main import app
from paceline.api.serve import CoordinatorServer, configuration, listen, main, taken_over
from tests.ports import free_port


def test_it_listens_on_each_address_once() -> None:
    port = free_port()
    sockets = listen(["127.0.0.1", "127.0.0.2", "127.0.0.1"], port)
    try:
        assert [each.getsockname() for each in sockets] == [("127.0.0.1", port), ("127.0.0.2", port)]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.3", port), timeout=5)
    finally:
        for each in sockets:
            each.close()


def test_a_used_port_is_told_with_its_address(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.2", port)):
        assert main(["--host", "127.0.0.1", "--host", "127.0.0.2", "--port", str(port)]) == 1
    assert f"error: cannot listen on 127.0.0.2:{port} (Address already in use" in capsys.readouterr().err
    socket.create_server(("127.0.0.1", port)).close()  # the first one was given back


def test_connections_are_guarded() -> None:
    config = configuration(app)
    config.load()
    assert config.http_protocol_class.__name__ == "GuardedProtocol"
    assert (config.limit_concurrency, config.ws_per_message_deflate) == (4096, False)
    assert (config.ws_max_size, config.ws_max_queue, config.ws_ping_interval, config.ws_ping_timeout) == (16 << 20, 8, 20, 20)


async def test_a_server_ticks_once_a_second_and_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn ticks ten times a second, which was a twentieth of what an idle coordinator did."""
    assert serve.TICK_SECONDS == 1.0
    monkeypatch.setattr(serve, "TICK_SECONDS", 3600.0)
    server, ticks = CoordinatorServer(configuration(app)), list[int]()

    async def tick(counter: int) -> bool:
        ticks.append(counter)
        return server.should_exit

    monkeypatch.setattr(server, "on_tick", tick)
    serving = asyncio.create_task(server.main_loop())
    await asyncio.wait({serving}, timeout=0.3)
    assert ticks == [0]
    server.should_exit = True
    await asyncio.wait_for(serving, 30)
    assert ticks == [0, 10]


@pytest.mark.parametrize(("ignores", "ends"), [(False, [True, True]), (True, [False, True])])
async def test_sigterm_ends_it_unless_it_is_told_to_ignore_that(ignores: bool, ends: list[bool]) -> None:
    """Slurm sends it to every process of a job, and the ranks of `paceline run` still had something to say."""
    seen = []
    for number in (signal.SIGTERM, signal.SIGINT):
        server = CoordinatorServer(configuration(app), ignores_sigterm=ignores)
        server.handle_exit(number, None)
        seen.append(server.should_exit)
    assert seen == ends


def test_it_listens_on_a_socket_that_it_was_started_with() -> None:
    """Between choosing a port and listening on it, seconds later, a connection could get it as its own end."""
    given = socket.socket()
    given.bind(("127.0.0.1", 0))
    port = given.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    with taken_over([given.detach()])[0] as taken:
        assert taken.getsockname() == ("127.0.0.1", port)
        assert not taken.get_inheritable()
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            taken.accept()[0].close()
