"""The control channel to the coordinator: one WebSocket, connected again for ever, with what is said on it left to the loop."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Protocol

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from cluster.agent.errors import ChannelRefusedError
from cluster.protocol import CHANNEL_PATH, Desired, FromAgent, Hello, Refused, ToAgent, Welcome

CONNECT_TIMEOUT_SECONDS = 10.0
WELCOME_TIMEOUT_SECONDS = 10.0
SEND_TIMEOUT_SECONDS = 10.0
PING_SECONDS = 10.0
FIRST_RETRY_SECONDS = 0.1
LONGEST_RETRY_SECONDS = 5.0
MAX_MESSAGE_BYTES = 16 << 20

log = logging.getLogger(__name__)

_decoder: msgspec.json.Decoder[ToAgent] = msgspec.json.Decoder(ToAgent)


class Loop(Protocol):
    """Who speaks on the channel."""

    def hello(self) -> Hello: ...

    def may_give_up(self) -> bool:
        """No rank is alive, so ending over a refusal harms nobody."""

    async def on_welcome(self, welcome: Welcome) -> None: ...

    async def on_desired(self, desired: Desired) -> None: ...


class Channel:
    def __init__(self, server: str, credential: str, loop: Loop) -> None:
        """`server`: ws(s)://host:port."""
        self._url = server + CHANNEL_PATH
        self._headers = {"Authorization": f"Bearer {credential}"}
        self._loop = loop
        self._connection: ClientConnection | None = None
        self._reported = False
        self._retry = FIRST_RETRY_SECONDS

    async def send(self, message: FromAgent) -> bool:
        """False while there is no connection; the loop says it again when there is."""
        if self._connection is None:
            return False
        try:
            async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
                await self._connection.send(msgspec.json.encode(message).decode())
        except (ConnectionClosed, TimeoutError):
            return False
        return True

    async def run(self) -> None:
        """Until cancelled, or ChannelRefusedError."""
        while True:
            try:
                await self._converse()
            except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed, msgspec.DecodeError) as error:
                self._report(error)
                self._give_up_if_unwelcome(error)
            await asyncio.sleep(self._retry * random.uniform(0.5, 1.0))
            self._retry = min(2 * self._retry, LONGEST_RETRY_SECONDS)

    async def _converse(self) -> None:
        """One connection's life."""
        async with connect(
            self._url,
            additional_headers=self._headers,
            open_timeout=CONNECT_TIMEOUT_SECONDS,
            ping_interval=PING_SECONDS,
            ping_timeout=PING_SECONDS,
            close_timeout=1.0,
            max_size=MAX_MESSAGE_BYTES,
        ) as connection:
            await connection.send(msgspec.json.encode(self._loop.hello()).decode())
            async with asyncio.timeout(WELCOME_TIMEOUT_SECONDS):
                first = _decoder.decode(await connection.recv())
            if isinstance(first, Welcome):
                await self._listen(connection, first)
            else:
                await self._heed(first)

    async def _listen(self, connection: ClientConnection, welcome: Welcome) -> None:
        self._connection, self._reported, self._retry = connection, False, FIRST_RETRY_SECONDS
        log.info("connected to the coordinator as node %s", welcome.node_id)
        try:
            await self._loop.on_welcome(welcome)
            async for text in connection:
                await self._heed(_decoder.decode(text))
        finally:
            self._connection = None

    async def _heed(self, message: ToAgent) -> None:
        match message:
            case Desired():
                await self._loop.on_desired(message)
            case Refused(final=True):
                text = f"the coordinator refused this node for good ({message.code}): {message.message}"
                raise ChannelRefusedError(text, removed=message.code == "removed")
            case Refused():
                log.warning("the coordinator ended the channel (%s): %s", message.code, message.message)
            case Welcome():
                log.warning("a second welcome on one connection; ignored")

    def _report(self, error: Exception) -> None:
        if not self._reported:
            log.warning("no channel to the coordinator: %s; ranks go on, trying again", error or type(error).__name__)
        self._reported = True

    def _give_up_if_unwelcome(self, error: Exception) -> None:
        """A refused credential ends an idle agent. With ranks alive it may be a proxy's mistake: they go on, we try on."""
        if isinstance(error, InvalidStatus) and error.response.status_code in (401, 403) and self._loop.may_give_up():
            text = (
                f"the coordinator answers {error.response.status_code} to this node's credential: it was removed, or belongs to "
                "another coordinator; delete credential.json in --data and join again with a new token"
            )
            raise ChannelRefusedError(text, removed=True) from error
