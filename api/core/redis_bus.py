"""Nudges between replicas, through one Redis channel: makes other replicas look sooner, and carries nothing that can be lost.

Each replica publishes the topics of its own nudges and delivers those of the others. Publishing only fills a set, so no request
ever waits for Redis. While Redis is away nothing is kept; once it is back, all loops and channels look at everything once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import NoReturn

import msgspec
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from paceline.api.core.background import in_background
from paceline.api.core.bus import Bus
from paceline.db.base import new_id
from paceline.monitoring.backoff import Backoff

logger = logging.getLogger(__name__)

CHANNEL = "paceline:nudges"
CONNECT_SECONDS = 2.0
#: One command and its answer.
SOCKET_SECONDS = 2.0
#: Without news we publish nothing at this pace, and hear ourselves: the proof that both ways are open.
HEARTBEAT_SECONDS = 5.0
#: Nothing heard for this long, not even ourselves: the connection is dead, whatever TCP says.
SILENCE_SECONDS = 12.0
#: Nudges that come within this time go out together.
GATHER_SECONDS = 0.01
#: More topics than this at once become "everything".
MOST_TOPICS = 1_000
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.1, 5.0


class Nudge(msgspec.Struct, frozen=True):
    """The topics of a nudge. `topics` None: everything."""

    sender: str
    topics: tuple[str, ...] | None


_ANYTHING = Nudge("", None)
_decoder = msgspec.json.Decoder(Nudge)


def connect(url: str) -> Redis:
    """A client for this URL. Raises ValueError for a URL that is none. The library's own retries stay off, whatever its defaults: they
    multiply every timeout."""
    return Redis.from_url(
        url, socket_connect_timeout=CONNECT_SECONDS, socket_timeout=SOCKET_SECONDS, retry=Retry(NoBackoff(), 0), health_check_interval=0
    )


@dataclass
class Outbox:
    """The topics that the other replicas are still to get: a bounded set, in which any number of equal nudges count as one."""

    _topics: set[str] = field(default_factory=set)
    _everything: bool = False
    _filled: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, topics: Collection[str]) -> None:
        if not self._everything:
            self._topics.update(topics)
        if len(self._topics) > MOST_TOPICS:
            self.add_everything()
        self._filled.set()

    def add_everything(self) -> None:
        self._topics.clear()
        self._everything = True
        self._filled.set()

    async def take(self, timeout: float) -> tuple[str, ...] | None:
        """The topics since the last call, None for everything, none at all after `timeout` seconds."""
        try:
            await asyncio.wait_for(self._filled.wait(), timeout)
        except TimeoutError:
            return ()
        topics = None if self._everything else tuple(self._topics)
        self._topics.clear()
        self._everything = False
        self._filled.clear()
        return topics


@dataclass
class RedisBus:
    """Ties one process's bus to those of the other replicas."""

    url: str
    bus: Bus
    replica: str = field(default_factory=new_id)
    _outbox: Outbox = field(default_factory=Outbox)
    _backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS))
    _down_since: float | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with connect(self.url) as client, in_background("redis-bus", partial(self._run, client)):
            with self.bus.forwarding_to(self._outbox.add):
                yield

    async def _run(self, client: Redis) -> NoReturn:
        while True:
            try:
                await self._run_connection(client)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with Redis, we go on without it and try again
                self._note_failure(error)
            await client.connection_pool.disconnect()
            await self._backoff.pause()

    async def _run_connection(self, client: Redis) -> None:
        """Publish and listen until the connection fails. Listening comes first: the echo of a published message shows that listening
        works."""
        async with client.pubsub() as inbox:
            await inbox.subscribe(CHANNEL)
            await _receive(inbox)  # the confirmation
            self._outbox.add_everything()
            both = [asyncio.create_task(self._publish_topics(client)), asyncio.create_task(self._listen(inbox))]
            try:
                done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                done.pop().result()
            finally:
                for task in both:
                    task.cancel()
                await asyncio.gather(*both, return_exceptions=True)

    async def _publish_topics(self, client: Redis) -> NoReturn:
        while True:
            topics = await self._outbox.take(HEARTBEAT_SECONDS)
            await client.publish(CHANNEL, msgspec.json.encode(Nudge(self.replica, topics)))
            await asyncio.sleep(GATHER_SECONDS)

    async def _listen(self, inbox: PubSub) -> NoReturn:
        while True:
            nudge = _decode(await _receive(inbox))
            if nudge.sender == self.replica:
                self._note_echo()
            elif nudge.topics is None:
                self.bus.nudge_everyone()
            else:
                self.bus.nudge(nudge.topics)

    def _note_echo(self) -> None:
        """Note that both ways are open. After an outage anything may have been missed."""
        self._backoff.reset()
        if self._down_since is not None:
            logger.info("Redis is back after %.1f s", monotonic() - self._down_since)
            self._down_since = None
            self.bus.nudge_everyone()

    def _note_failure(self, error: Exception) -> None:
        if self._down_since is None:
            self._down_since = monotonic()
            why = f"{type(error).__name__}: {error}"
            logger.warning("Redis does not work (%s); until it does, replicas find each other's changes by looking", why)


async def _receive(inbox: PubSub) -> bytes | int:
    message = await inbox.get_message(timeout=SILENCE_SECONDS)
    if message is None:
        raise TimeoutError(f"nothing heard for {SILENCE_SECONDS:.0f} s, not even our own messages")
    data: bytes | int = message["data"]
    return data


def _decode(data: bytes | int) -> Nudge:
    """The nudge in a message. An unreadable one may come from a newer version: a nudge for everything is never wrong."""
    try:
        return _decoder.decode(data if isinstance(data, bytes) else b"")
    except msgspec.DecodeError:
        return _ANYTHING
