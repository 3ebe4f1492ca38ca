"""The coordinator's sockets: one for each address that was asked for, and no other."""

from __future__ import annotations

import socket

import pytest

from paceline.api.serve import configuration, listen, main
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
    with socket.create_server(("127.0.0.2", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--host", "127.0.0.1", "--host", "127.0.0.2", "--port", str(port)]) == 1
    assert f"error: cannot listen on 127.0.0.2:{port} (Address already in use" in capsys.readouterr().err
    socket.create_server(("127.0.0.1", port)).close()  # the first one was given back


def test_connections_are_guarded() -> None:
    config = configuration()
    config.load()
    assert config.http_protocol_class.__name__ == "GuardedProtocol"
    assert (config.limit_concurrency, config.ws_per_message_deflate) == (4096, False)
