"""Ports of this machine for a coordinator of its own."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence

from paceline.cli.errors import StackError
from paceline.cli.local.exposure import LOOPBACK

PORTS_TRIED = 50


def hold(wanted: int, hosts: Sequence[str] = (LOOPBACK,)) -> list[socket.socket]:
    """Hold at all of these addresses the port `wanted`, or the next one above it that is unused at each: sockets that do not listen yet, so that who
    connects is refused, and that no other connection of this machine gets as its own end. Raises StackError."""
    for port in range(wanted, wanted + PORTS_TRIED):
        with contextlib.ExitStack() as until_all_are_held:
            try:
                sockets = [until_all_are_held.enter_context(_bound(host, port)) for host in dict.fromkeys(hosts)]
            except OSError:
                continue
            until_all_are_held.pop_all()
            return sockets
    raise StackError(f"ports {wanted} to {wanted + PORTS_TRIED - 1} are all used", "name a free one with --port")


def _bound(host: str, port: int) -> socket.socket:
    with contextlib.ExitStack() as until_bound:
        found = until_bound.enter_context(socket.socket())
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of a coordinator that has ended may still close
        found.bind((host, port))
        until_bound.pop_all()
        return found


def free_port(wanted: int) -> int:
    """Return the port `wanted` of loopback, or the next one above it that nothing uses now."""
    (found,) = hold(wanted)
    with found:
        return int(found.getsockname()[1])


def unused_port() -> int:
    """Return a port that the system chose, so that several stacks may start at once."""
    return free_port(0)
