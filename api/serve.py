"""`python -m paceline.api.serve --port PORT [--host ADDRESS ...] [--tls ...]`: the coordinator on one port of each address, as `paceline up` starts it.

uvicorn's own command listens on one address or on all of them. This server can listen on loopback and one more, and on no other. With --tls
every address but those of loopback has TLS; what is on this machine already reaches it without.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import ipaddress
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from paceline.api.core.certificates import SELF_SIGNED, ServerCertificate, own_certificate
from paceline.api.settings import Settings
from paceline.distributed.heap import share_arenas
from paceline.tls.trust import TrustError

if TYPE_CHECKING:
    from fastapi import FastAPI

LOOPBACK = "127.0.0.1"
#: Time-outs and limits for what a peer leaves undone, which uvicorn itself does not have.
GUARD = "paceline.api.middleware.connections:GuardedProtocol"
CONNECTIONS = 4096
#: How long an idle connection is kept: longer than an agent, a browser or a proxy waits between two requests, so that they close it.
KEEP_ALIVE_S = 75
GRACEFUL_SHUTDOWN_S = 5
#: Of one message of an agent or a browser, and how many of one connection wait to be read. An agent's longest tells of the failures of all its ranks.
FRAME_BYTES, FRAMES_WAITING = 16 << 20, 8
#: Between two pings of a WebSocket, and for the answer of its peer.
PING_SECONDS = 20.0
#: What uvicorn's own command ends with when the application does not start.
NOT_STARTED = 3
#: A peer that opens a connection and does not finish its handshake.
HANDSHAKE_SECONDS = 10.0


def load_application() -> FastAPI:
    """Load the coordinator's application. Nothing of what is loaded is garbage: looking for some takes an eighth of the time."""
    gc.disable()
    try:
        from paceline.api.main import app
    finally:
        gc.enable()
    return app


def configuration(application: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        http=GUARD,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_S,
        access_log=False,
        ws_max_size=FRAME_BYTES,
        ws_max_queue=FRAMES_WAITING,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PING_SECONDS,
        ws_per_message_deflate=False,  # compressing each small message for each of a thousand sockets costs more than it saves
    )


TICK_SECONDS = 1.0
#: Ticks of uvicorn in a second, by which it counts them.
_UVICORN_TICKS = 10


class CoordinatorServer(uvicorn.Server):
    """uvicorn's server, with TLS for other machines alone."""

    def __init__(self, config: uvicorn.Config, certificate: ServerCertificate | None = None, *, ignores_sigterm: bool = False) -> None:
        """Make a server. With `certificate`, sockets of other addresses than loopback have TLS. `ignores_sigterm`: only SIGINT ends it."""
        self._loop: asyncio.AbstractEventLoop | None = None  # while it serves
        self._ending = asyncio.Event()
        super().__init__(config)
        self._certificate = certificate
        self._ignores_sigterm = ignores_sigterm
        self._renewal: asyncio.Task[None] | None = None

    @property
    def should_exit(self) -> bool:
        """Whether the server is to end. Setting it, also from a signal's handler, wakes the server."""
        return self._should_exit

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        self._should_exit = value
        if value and self._loop is not None:
            self._loop.call_soon_threadsafe(self._ending.set)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig != signal.SIGTERM or not self._ignores_sigterm:
            super().handle_exit(sig, frame)

    async def main_loop(self) -> None:
        """Tick once a second, for the header with the date. uvicorn's own ticks ten times as often, to see `should_exit` soon."""
        self._loop, seconds = asyncio.get_running_loop(), 0
        try:
            while not await self.on_tick(seconds * _UVICORN_TICKS):
                seconds += 1
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_SECONDS):
                        await self._ending.wait()
        finally:
            self._loop = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        secured = [each for each in sockets or [] if self._certificate is not None and not _is_loopback(each)]
        await super().startup([each for each in sockets if each not in secured] if sockets is not None else None)
        if self._certificate is not None and self.started:
            await self._answer_over_tls(secured, self._certificate)
            self._renewal = asyncio.create_task(self._certificate.keep(), name="certificate")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
        await super().shutdown(sockets)

    async def _answer_over_tls(self, sockets: Sequence[socket.socket], certificate: ServerCertificate) -> None:
        """Serve these sockets as uvicorn does, with a limit for the handshake, which uvicorn leaves at a minute."""

        def protocol() -> asyncio.Protocol:
            return self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )

        loop = asyncio.get_running_loop()
        for each in sockets:
            server = await loop.create_server(
                protocol,
                sock=each,
                ssl=certificate.context,
                backlog=self.config.backlog,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=GRACEFUL_SHUTDOWN_S,
            )
            self.servers.append(server)


def _is_loopback(listening: socket.socket) -> bool:
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


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


def taken_over(descriptors: Sequence[int]) -> list[socket.socket]:
    """Listen on sockets that this process was started with, which have their addresses. Raises OSError where that cannot be."""
    sockets = [socket.socket(fileno=each) for each in descriptors]
    for each in sockets:
        each.set_inheritable(False)
        each.listen()
    return sockets


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    share_arenas()
    application, hosts = load_application(), options.host or [LOOPBACK]
    try:
        certificate = _certificate(application, options.tls, hosts)
        sockets = taken_over(options.socket) if options.socket else listen(hosts, options.port)
    except (OSError, TrustError) as error:
        print(f"error: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 1
    _warn(sockets, certificate, application.state.settings)
    server = CoordinatorServer(configuration(application), certificate, ignores_sigterm=options.ignore_sigterm)
    server.run(sockets=sockets)
    return 0 if server.started else NOT_STARTED


def parser() -> argparse.ArgumentParser:
    """Return the parser of this program's command line."""
    options = argparse.ArgumentParser(prog="python -m paceline.api.serve", description="Run the coordinator.")
    options.add_argument("--host", action="append", metavar="ADDRESS", help=f"IPv4 address to listen on; repeatable (default: {LOOPBACK})")
    options.add_argument("--port", type=int, default=8000, help="the same on each address (default: %(default)s)")
    options.add_argument(
        "--socket",
        action="append",
        type=int,
        metavar="FD",
        help="a descriptor that this process was started with, of a socket that has --port of an address; repeatable",
    )
    options.add_argument(
        "--ignore-sigterm", action="store_true", help="only SIGINT ends it: SIGTERM may come to every process of a Slurm job"
    )
    options.add_argument(
        "--tls",
        nargs="+",
        metavar=("CERT", "KEY"),
        help="TLS on every address but loopback: a certificate with its chain and its key, in PEM, read again when they change; or "
        f"'{SELF_SIGNED}' alone, for an authority and a certificate of this coordinator's own in PACELINE_DATA/tls",
    )
    return options


def _certificate(application: FastAPI, words: Sequence[str] | None, hosts: Sequence[str]) -> ServerCertificate | None:
    """The certificate that --tls asks for. An authority of our own is told to the application, whose join tokens carry its fingerprint."""
    if words is None:
        return None
    settings: Settings = application.state.settings
    if list(words) == [SELF_SIGNED]:
        certificate = own_certificate(settings, hosts)
        application.state.settings = settings.model_copy(update={"tls_ca": certificate.authority})
        return certificate
    if len(words) != 2:
        raise TrustError(f"--tls takes a certificate and its key, or {SELF_SIGNED} alone; {' '.join(words)} is neither")
    return ServerCertificate.of_files(Path(words[0]), Path(words[1]))


def _warn(sockets: Sequence[socket.socket], certificate: ServerCertificate | None, settings: Settings) -> None:
    """Say what an address without TLS answers to other machines: refusals, or everything, in the clear."""
    open_ones = [each.getsockname()[0] for each in sockets if not _is_loopback(each)]
    if certificate is not None or not open_ones:
        return
    what = "keys travel readable to other machines" if settings.insecure_public else "plain http of other machines is refused"
    behind = "; behind a proxy with TLS set FORWARDED_ALLOW_IPS to its address" if not settings.insecure_public else ""
    print(f"warning: no TLS on {', '.join(open_ones)}: {what}; use --tls{behind}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
