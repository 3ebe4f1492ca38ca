"""A port is held from the moment in which it is chosen."""

from __future__ import annotations

import contextlib
import socket

import pytest

from paceline.cli.errors import StackError
from paceline.cli.local import ports
from paceline.cli.local.ports import free_port, hold, unused_port


def test_the_next_port_that_is_unused_at_all_addresses_is_held() -> None:
    with contextlib.ExitStack() as held:
        first = held.enter_context(socket.create_server(("127.0.0.2", 0)))
        port = first.getsockname()[1]
        sockets = [held.enter_context(each) for each in hold(port, ["127.0.0.1", "127.0.0.2"])]
        chosen = {each.getsockname()[1] for each in sockets}
        assert len(chosen) == 1
        assert chosen.pop() > port
        socket.create_server(("127.0.0.1", port)).close()  # the one that was not enough was given back
        with pytest.raises(ConnectionRefusedError):  # an agent that came early would wait, give up, and find its token used
            socket.create_connection(sockets[0].getsockname(), timeout=5)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(sockets[0].getsockname())


def test_one_address_that_is_named_twice_is_held_once() -> None:
    sockets = hold(port := unused_port(), ["127.0.0.1", "127.0.0.1"])
    with contextlib.ExitStack() as held:
        assert [held.enter_context(each).getsockname() for each in sockets] == [("127.0.0.1", port)]


def test_where_all_are_used_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "PORTS_TRIED", 1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StackError, match=f"ports {port} to {port} are all used"):
            free_port(port)
