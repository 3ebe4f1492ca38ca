"""Nudges through a real Redis: to the others, never back; bounded; and nobody waits when it is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from paceline.api.core import redis_bus
from paceline.api.core.bus import Bus
from paceline.api.core.redis_bus import CHANNEL, MOST_TOPICS, Outbox, RedisBus
from paceline.monitoring.backoff import Backoff
from tests.ports import HOST, free_port
from tests.private_redis import PrivateRedis
from tests.waiting import until

ARRIVES_SECONDS = 5.0
AT_ONCE_SECONDS = 0.05
#: Long enough for a message that must not come to come.
ABSENT_SECONDS = 0.3


async def open_way(speaker: Bus, hearer: Bus) -> None:
    """Until `hearer` hears `speaker`; whatever `speaker` had to say at its start is then over."""
    with hearer.subscribe("way") as way:
        async with asyncio.timeout(ARRIVES_SECONDS):
            speaker.publish("way")
            while not await way.wait(0.1):
                speaker.publish("way")


@asynccontextmanager
async def pair(url: str) -> AsyncIterator[tuple[Bus, Bus]]:
    a, b = Bus(), Bus()
    async with RedisBus(url, a).running(), RedisBus(url, b).running():
        await open_way(a, b)
        await open_way(b, a)
        yield a, b


async def test_a_nudge_reaches_the_other_replica_and_does_not_come_back(private_redis: PrivateRedis) -> None:
    async with pair(private_redis.url) as (a, b):
        with a.subscribe("topic") as ours, b.subscribe("topic") as theirs, b.subscribe("other") as unconcerned:
            a.publish("topic")
            assert await ours.wait(AT_ONCE_SECONDS)
            assert await theirs.wait(ARRIVES_SECONDS)
            assert not await ours.wait(ABSENT_SECONDS)
            assert not await unconcerned.wait(AT_ONCE_SECONDS)


async def test_many_topics_at_once_become_everything() -> None:
    outbox = Outbox()
    outbox.add(["one", "two"])
    outbox.add(["two"])
    assert set(await outbox.take(AT_ONCE_SECONDS) or ()) == {"one", "two"}
    assert await outbox.take(AT_ONCE_SECONDS) == ()
    outbox.add([f"topic {number}" for number in range(MOST_TOPICS + 1)])
    outbox.add(["one more"])
    assert await outbox.take(AT_ONCE_SECONDS) is None
    assert await outbox.take(AT_ONCE_SECONDS) == ()


async def test_an_unreadable_message_nudges_every_subscriber(private_redis: PrivateRedis) -> None:
    async with pair(private_redis.url) as (a, _), Redis.from_url(private_redis.url) as stranger:
        with a.subscribe("topic") as topic:
            await stranger.publish(CHANNEL, b'{"version": 99}')
            assert await topic.wait(ARRIVES_SECONDS)


async def test_a_replica_that_connects_makes_the_others_look(private_redis: PrivateRedis) -> None:
    """What it said while it was away is lost, and they have noticed nothing."""
    late = Bus()
    late.publish("missed")
    async with pair(private_redis.url) as (a, _):
        with a.subscribe("missed") as missed:
            assert not await missed.wait(AT_ONCE_SECONDS)
            async with RedisBus(private_redis.url, late).running():
                assert await missed.wait(ARRIVES_SECONDS)


async def test_after_an_outage_everyone_looks_once(private_redis: PrivateRedis) -> None:
    async with pair(private_redis.url) as (a, b):
        private_redis.kill()
        with a.subscribe("quiet") as ours, b.subscribe("missed") as theirs:
            a.publish("missed")
            assert not await theirs.wait(ABSENT_SECONDS)
            private_redis.start()
            assert await ours.wait(2 * redis_bus.LONGEST_RETRY_SECONDS)
            assert await theirs.wait(2 * redis_bus.LONGEST_RETRY_SECONDS)
        await open_way(a, b)
        await open_way(b, a)


async def test_an_outage_is_logged_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_bus, "LONGEST_RETRY_SECONDS", 0.05)
    relay = RedisBus(f"redis://{HOST}:{free_port()}/0", Bus())
    async with relay.running():
        await until(lambda: relay._backoff.failures >= 4, "the fourth attempt")
    assert [record.levelno for record in caplog.records if record.name == redis_bus.__name__] == [logging.WARNING]


async def test_a_server_that_never_answers_blocks_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is given up after one timeout."""
    monkeypatch.setattr(redis_bus, "CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(redis_bus, "SOCKET_SECONDS", 0.2)
    monkeypatch.setattr(redis_bus, "SILENCE_SECONDS", 0.2)
    gone, calls = asyncio.Event(), 0

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        while await reader.read(1000):
            pass
        writer.close()
        gone.set()

    server = await asyncio.start_server(swallow, HOST, 0)
    bus, longest = Bus(), Backoff(60.0, 60.0, fraction=lambda: 1.0)  # a draw near zero would call again at once
    relay = RedisBus(f"redis://{HOST}:{server.sockets[0].getsockname()[1]}/0", bus, _backoff=longest)
    async with server, asyncio.timeout(ARRIVES_SECONDS), relay.running():
        with bus.subscribe("topic") as topic:
            bus.publish("topic")
            assert await topic.wait(AT_ONCE_SECONDS)
        await until(lambda: relay._backoff.failures >= 1, "it is given up")
        await gone.wait()
    assert calls == 1, "a library that tries again would call again"


async def test_a_subscription_that_falls_silent_is_given_up(private_redis: PrivateRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a firewall that forgets connections: nothing fails, nothing arrives."""
    monkeypatch.setattr(redis_bus, "HEARTBEAT_SECONDS", 60.0)
    monkeypatch.setattr(redis_bus, "SILENCE_SECONDS", 0.2)
    bus = Bus()
    relay = RedisBus(private_redis.url, bus)
    async with relay.running():
        with bus.subscribe("topic") as topic:
            assert await topic.wait(ARRIVES_SECONDS), "it connected anew and looked once"


async def test_a_url_that_is_none_stops_the_start() -> None:
    with pytest.raises(ValueError, match="scheme"):
        async with RedisBus("localhost:6379", Bus()).running():
            pass
