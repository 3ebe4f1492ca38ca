from __future__ import annotations

import contextlib
import socket

import pytest

from paceline.cluster.agent.ports import free_port, listen


def test_a_port_that_listens_is_kept() -> None:
    with listen("127.0.0.1") as listener, socket.create_connection(listener.getsockname()):
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match=f"none of ports {port}-{port} of"):
            listen("127.0.0.1", range(port, port + 1))


def first_of_two_free() -> int:
    """The lower of two neighbouring ports that nothing uses."""
    for port in range(free_port("127.0.0.1", range(20_000, 30_000)), 40_000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)), socket.create_server(("127.0.0.1", port + 1)):
            return port
    raise AssertionError("no two neighbouring ports are free")


def test_a_port_range_is_kept_to_and_what_is_used_in_it_passed_over() -> None:
    first = first_of_two_free()
    with socket.create_server(("127.0.0.1", first)):
        ports = range(first, first + 2)
        with pytest.raises(OSError, match=f"none of ports {first}-{first} of"):
            free_port("127.0.0.1", range(first, first + 1))
        assert free_port("127.0.0.1", ports) == first + 1
