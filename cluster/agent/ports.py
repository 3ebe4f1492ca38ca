"""Ports of this node's own addresses, from a range where its operator has given one."""

from __future__ import annotations

import contextlib
import random
import socket

from paceline.distributed.probes import family_of

BACKLOG = 1024


def free_port(host: str, ports: range | None = None) -> int:
    """A port that is free now; the first process to bind it has it. Raises OSError where none of `ports` is free."""
    with _bind_any(host, ports) as bound:
        return int(bound.getsockname()[1])


def listen(host: str, ports: range | None = None) -> socket.socket:
    """A socket that listens on a free port of `ports`. Raises OSError where none is free."""
    bound = _bind_any(host, ports)
    bound.listen(BACKLOG)
    return bound


def _bind_any(host: str, ports: range | None) -> socket.socket:
    if ports is None:
        return _bind(host, 0)
    for port in random.sample(ports, len(ports)):  # gangs that start at the same moment should not all take the first
        with contextlib.suppress(OSError):
            return _bind(host, port)
    raise OSError(f"none of ports {ports.start}-{ports.stop - 1} of {host} is free; widen --port-range")


def _bind(host: str, port: int) -> socket.socket:
    bound = socket.socket(family_of(host))
    try:
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
