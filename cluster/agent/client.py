"""The control channel to the coordinator: one WebSocket, connected again for ever. The agent's loop decides what is said on it."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Protocol

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from paceline.cluster.agent.errors import ChannelRefusedError
from paceline.cluster.protocol import (
    CHANNEL_PATH,
    AgentHello,
    ConnectionRefused,
    Desired,
    FromAgent,
    OpenExec,
    ToAgent,
    Welcome,
    decode_to_agent,
)
from paceline.monitoring.backoff import Backoff

CONNECT_TIMEOUT_SECONDS = 10.0
WELCOME_TIMEOUT_SECONDS = 10.0
SEND_TIMEOUT_SECONDS = 10.0
PING_SECONDS = 10.0
FIRST_RETRY_SECONDS = 0.1
LONGEST_RETRY_SECONDS = 5.0
MAX_MESSAGE_BYTES = 16 << 20

log = logging.getLogger(__name__)


class AgentLoop(Protocol):
    """The part of the agent that the channel calls: what to send, and what to do with messages."""

    def hello(self) -> AgentHello: ...

    def may_give_up(self) -> bool:
        """Whether no rank is alive, so that the agent may end over a refusal without harm."""

    async def on_welcome(self, welcome: Welcome) -> None: ...

    async def on_desired(self, desired: Desired) -> None: ...

    async def on_open_exec(self, order: OpenExec) -> None: ...


class CoordinatorChannel:
    def __init__(
        self, server: str, credential: str, loop: AgentLoop, *, ping_timeout: float | None = PING_SECONDS, tls: ssl.SSLContext | None = None
    ) -> None:
        """Make a channel to `server` (ws(s)://host:port); `run` connects it. `ping_timeout`: seconds without an answer after which the
        connection counts as lost; None: never. `tls`: for wss, whom to believe."""
        self._tls = tls
        self._ping_timeout = ping_timeout
        self._url = server + CHANNEL_PATH
        self._headers = {"Authorization": f"Bearer {credential}"}
        self._loop = loop
        self._connection: ClientConnection | None = None
        self._reported = False
        self._backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)

    @property
    def is_connected(self) -> bool:
        """Whether the coordinator has welcomed this node, and the connection stands."""
        return self._connection is not None

    async def send(self, message: FromAgent) -> bool:
        """Send a message. Returns False while there is no connection; the loop sends it again on the next one."""
        if self._connection is None:
            return False
        try:
            async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
                await self._connection.send(msgspec.json.encode(message).decode())
        except (ConnectionClosed, TimeoutError):
            return False
        return True

    async def run(self) -> None:
        """Connect and serve the channel, again and again, until cancelled. Raises ChannelRefusedError."""
        while True:
            try:
                await self._run_connection()
            except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed, msgspec.DecodeError) as error:
                self._report(error)
                self._raise_if_refused(error)
            await self._backoff.pause()

    async def _run_connection(self) -> None:
        """Serve one connection until it ends."""
        async with connect(
            self._url,
            ssl=self._tls,
            additional_headers=self._headers,
            open_timeout=CONNECT_TIMEOUT_SECONDS,
            ping_interval=PING_SECONDS,
            ping_timeout=self._ping_timeout,
            close_timeout=1.0,
            max_size=MAX_MESSAGE_BYTES,
        ) as connection:
            await connection.send(msgspec.json.encode(self._loop.hello()).decode())
            async with asyncio.timeout(WELCOME_TIMEOUT_SECONDS):
                first = decode_to_agent(await connection.recv())
            if isinstance(first, Welcome):
                await self._listen(connection, first)
            else:
                await self._on_message(first)

    async def _listen(self, connection: ClientConnection, welcome: Welcome) -> None:
        self._connection, self._reported = connection, False
        self._backoff.reset()
        log.info("connected to the coordinator as node %s", welcome.node_id)
        try:
            await self._loop.on_welcome(welcome)
            async for text in connection:
                await self._on_message(decode_to_agent(text))
        finally:
            self._connection = None

    async def _on_message(self, message: ToAgent) -> None:
        match message:
            case Desired():
                await self._loop.on_desired(message)
            case OpenExec():
                await self._loop.on_open_exec(message)
            case ConnectionRefused(final=True):
                text = f"the coordinator refused this node for good ({message.code}): {message.message}"
                removed = message.code == "removed"
                raise ChannelRefusedError(text, removed=removed, credential_is_void=removed)
            case ConnectionRefused():
                log.warning("the coordinator ended the channel (%s): %s", message.code, message.message)
            case Welcome():
                log.warning("a second welcome on one connection; ignored")

    def _report(self, error: Exception) -> None:
        if not self._reported:
            log.warning("no channel to the coordinator: %s; ranks go on, trying again", str(error) or type(error).__name__)
        self._reported = True

    def _raise_if_refused(self, error: Exception) -> None:
        """End an idle agent over a refused credential. With ranks alive the refusal may be a proxy's mistake: the ranks go on, and the
        channel tries again."""
        if isinstance(error, InvalidStatus) and error.response.status_code in (401, 403) and self._loop.may_give_up():
            text = (
                f"the coordinator answers {error.response.status_code} to this node's credential: it was removed, or belongs to "
                "another coordinator; delete credential.json in --data and join again with a new token"
            )
            raise ChannelRefusedError(text, removed=True) from error
