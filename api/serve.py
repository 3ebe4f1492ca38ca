"""`python -m paceline.api.serve --port PORT [--host ADDRESS ...]`: the coordinator on one port of each address, as `paceline up` starts it.

uvicorn's own command listens on one address or on all of them. This server can listen on loopback and one more, and on no other.
"""

from __future__ import annotations

import argparse
import gc
import socket
import sys
from collections.abc import Sequence

import uvicorn

LOOPBACK = "127.0.0.1"
APP = "paceline.api.main:app"
#: Time-outs and limits for what a peer leaves undone, which uvicorn itself does not have.
GUARD = "paceline.api.middleware.connections:GuardedProtocol"
CONNECTIONS = 4096
KEEP_ALIVE_S = 5
GRACEFUL_SHUTDOWN_S = 5
#: What uvicorn's own command ends with when the application does not start.
NOT_STARTED = 3


def configuration() -> uvicorn.Config:
    return uvicorn.Config(
        APP,
        http=GUARD,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_S,
        access_log=False,
        ws_per_message_deflate=False,  # compressing each small message for each of a thousand sockets costs more than it saves
    )


class CoordinatorServer(uvicorn.Server):
    """uvicorn's server, which once it has started leaves what it has loaded out of the garbage collector's rounds.

    Modules, schemas and mappers stay for as long as the process does. Looking through them all, which a large document of one request sets
    off, takes a tenth of a second in which no other request is answered."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.collect()
        gc.freeze()


def listen(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """One listening socket for each IPv4 address. Raises OSError where an address is not this machine's, or its port is used."""
    sockets: list[socket.socket] = []
    try:
        for host in dict.fromkeys(hosts):
            sockets.append(socket.create_server((host, port)))
    except OSError as error:
        for each in sockets:
            each.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port} ({error.strerror}); use another --host or --port") from error
    return sockets


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m paceline.api.serve", description="Run the coordinator.")
    parser.add_argument("--host", action="append", metavar="ADDRESS", help=f"IPv4 address to listen on; repeatable (default: {LOOPBACK})")
    parser.add_argument("--port", type=int, default=8000, help="the same on each address (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        sockets = listen(options.host or [LOOPBACK], options.port)
    except OSError as error:
        print(f"error: {error.strerror}", file=sys.stderr)
        return 1
    server = CoordinatorServer(configuration())
    server.run(sockets=sockets)
    return 0 if server.started else NOT_STARTED


if __name__ == "__main__":
    sys.exit(main())
