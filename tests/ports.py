"""Ports for servers that a test starts."""

from __future__ import annotations

import errno
import secrets
import socket

HOST = "127.0.0.1"
#: Below those that the kernel gives to outgoing connections, which come and go beside the test by the hundred.
FIRST, LAST = 20_000, 32_000


def free_port() -> int:
    """One that is free now, and that only another call of this is likely to take; with odds of one in thousands."""
    while True:
        port = FIRST + secrets.randbelow(LAST - FIRST + 1)  # no seed that a test sets makes two workers try the same ones in turn
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return port
