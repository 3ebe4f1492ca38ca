"""Live streams over real sockets: hello at once, resume without loss, gaps, resets, and who is let in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

import pytest
import uvicorn
from fastapi import FastAPI, WebSocket
from sqlalchemy import update
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed, InvalidStatus

from paceline.api.core import identity
from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.core.origin import PLAIN_COOKIE
from paceline.api.serve import configuration
from paceline.api.services.identity import accounts
from paceline.api.services.ingest.writer import MetricsWriter
from paceline.api.services.lifecycle import events
from paceline.api.websocket import streams
from paceline.api.websocket.sources import Frame, MetricsSource, encoded
from paceline.api.websocket.streams import Follower
from paceline.credentials import hash_secret
from paceline.db.models.identity import ApiKeyRow
from paceline.db.models.readings import NodeReadingRow
from paceline.db.repositories import identity as identity_rows
from paceline.monitoring.points import RankBatch
from tests import factories, readings
from tests.waiting import until

ARRIVES_SECONDS = 5.0


@dataclass(frozen=True)
class Live:
    port: int
    key: str
    services: Services
    writer: MetricsWriter
    job_id: str
    server: uvicorn.Server

    @asynccontextmanager
    async def socket(self, path: str, **headers: str) -> AsyncIterator[ClientConnection]:
        headers = headers or {"Authorization": f"Bearer {self.key}"}
        url = f"ws://127.0.0.1:{self.port}/api/v1{path}"
        async with open_socket(url, additional_headers=headers, max_queue=10_000) as socket:
            yield socket

    def metrics(self, query: str = "", **headers: str) -> Any:
        return self.socket(f"/metrics/stream/{self.job_id}{query}", **headers)

    async def store(self, first: int, count: int) -> None:
        batch = RankBatch(
            job_id=self.job_id, generation=1, rank=0, metrics=factories.records(first, count), logs=factories.log_lines(count, seq=first)
        )
        await self.writer.store([batch])


@pytest.fixture
async def live(app: FastAPI, services: Services, admin_key: str) -> AsyncIterator[Live]:
    """The app behind a real uvicorn as the coordinator configures it; its lifespan is the fixture's."""
    config = configuration(app)
    config.port, config.lifespan = 0, "off"
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started, "the server's start")
    async with services.write() as session:
        job = await factories.create_job(session)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield Live(port, admin_key, services, app.state.writer, job.id, server)
    server.should_exit = True
    await asyncio.wait_for(serving, ARRIVES_SECONDS)


async def frame(socket: ClientConnection) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(await asyncio.wait_for(socket.recv(), ARRIVES_SECONDS))
    return document


async def steps(socket: ClientConnection, count: int) -> list[int]:
    frames = [await frame(socket) for _ in range(count)]
    assert {item["type"] for item in frames} == {"record"}
    return [item["data"]["step"] for item in frames]


async def close_code(socket: ClientConnection) -> int | None:
    """How the server ends this socket, after whatever it still has to say."""
    try:
        while True:
            await frame(socket)
    except ConnectionClosed:
        return socket.close_code


async def test_hello_comes_first_then_what_is_stored(live: Live) -> None:
    async with live.metrics() as socket:
        assert (await frame(socket))["type"] == "hello"
        await live.store(1, 3)
        record = await frame(socket)
        assert record["data"] | {"time": 0} == {
            "rank": 0,
            "generation": 1,
            "step": 1,
            "time": 0,
            "values": record["data"]["values"],
        }
        assert await steps(socket, 2) == [2, 3]


async def test_a_client_that_resumes_misses_nothing_and_sees_nothing_twice(live: Live) -> None:
    await live.store(1, 600)
    seen: list[int] = []
    position = 0
    for take in (1, 250, 349):
        async with live.metrics(f"?after={position}") as socket:
            assert (await frame(socket))["data"] == {"as_of_seq": 600}
            for _ in range(take):
                item = await frame(socket)
                seen.append(item["data"]["step"])
                position = item["seq"]
    assert seen == list(range(1, 601))


async def test_too_far_behind_is_one_gap(live: Live) -> None:
    for first in range(1, 6_001, 3_000):
        await live.store(first, 3_000)
    async with live.metrics("?after=10") as socket:
        hello, gap = await frame(socket), await frame(socket)
        assert (gap["type"], gap["data"]) == ("gap", {"from": 11, "to": hello["seq"]})
        await live.store(6_001, 1)
        assert await steps(socket, 1) == [6_001]


@pytest.mark.parametrize("cursor", ["999999", "x", "-1", "9" * 40])
async def test_an_unknown_cursor_is_reset(live: Live, cursor: str) -> None:
    async with live.metrics(f"?after={cursor}") as socket:
        assert [(await frame(socket))["type"] for _ in range(2)] == ["hello", "reset"]
        await live.store(1, 1)
        assert await steps(socket, 1) == [1]


async def test_logs_and_events_stream_too(live: Live) -> None:
    async with live.socket(f"/training/jobs/{live.job_id}/logs/stream") as logs, live.socket("/events/stream") as history:
        assert (await frame(logs))["topic"] == "logs"
        assert (await frame(history))["topic"] == "events"
        await live.store(1, 1)
        line = await frame(logs)
        assert (line["type"], line["data"]["text"]) == ("line", "line 1")
        async with live.services.write() as session:
            await events.record(session, type="test", actor=SYSTEM, cause="test", message="happened")
        event = await frame(history)
        assert (event["type"], event["data"]["message"]) == ("event", "happened")


async def test_events_of_one_job_only(live: Live) -> None:
    async with live.socket(f"/events/stream?job_id={live.job_id}") as history:
        await frame(history)
        async with live.services.write() as session:
            for job_id in (None, live.job_id):
                await events.record(session, type="test", actor=SYSTEM, cause="test", message=str(job_id), job_id=job_id)
        assert (await frame(history))["data"]["message"] == live.job_id


@pytest.mark.parametrize(
    ("path", "headers", "code"),
    [
        ("/events/stream", {"X": "y"}, 4401),
        ("/events/stream", {"Authorization": "Bearer pk_wrong"}, 4401),
        ("/metrics/stream/nothing", {}, 4404),
        ("/events/stream?job_id=nothing", {}, 4404),
    ],
)
async def test_refusals_have_codes(live: Live, path: str, headers: dict[str, str], code: int) -> None:
    async with live.socket(path, **headers) as socket:
        assert await close_code(socket) == code


async def test_another_sites_page_is_refused_even_with_our_cookie(live: Live) -> None:
    async with live.services.write() as session:
        user = await identity_rows.user_by_name(session, "admin")
        assert user is not None
        opened = identity.SessionOpening("login_link", "127.0.0.1", None)
        secret, _ = await identity.open_session(session, user, opened, live.services.now(), lifetime=factories.HOUR)
    cookie = {"Cookie": f"{PLAIN_COOKIE}_{live.port}={secret}"}
    for origin in ("http://evil.example", "null"):
        async with live.metrics(**cookie, Origin=origin) as socket:
            assert await close_code(socket) == 4403
    async with live.metrics(**cookie, Origin=f"http://127.0.0.1:{live.port}") as socket:
        assert (await frame(socket))["type"] == "hello"


async def test_an_unknown_host_never_becomes_a_socket(live: Live) -> None:
    url = f"ws://rebound.example:{live.port}/api/v1/events/stream"
    with pytest.raises(InvalidStatus) as refused:
        await open_socket(url, host="127.0.0.1", port=live.port, additional_headers={"Authorization": f"Bearer {live.key}"})
    assert refused.value.response.status_code == 403


async def test_revoking_a_key_closes_its_sockets_within_a_second(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, by a nudge. Where another replica revokes it no nudge may come, and a look finds it."""
    assert streams.OTHER_REPLICAS_SECONDS < 1.0
    for look in ("PING_SECONDS", "OTHER_REPLICAS_SECONDS"):
        monkeypatch.setattr(streams, look, 3600.0)
    async with live.metrics() as socket:
        await frame(socket)
        async with live.services.write() as session:
            caller = await identity.caller_of_key(session, hash_secret(live.key), live.services.now())
            assert caller is not None
            found = await identity_rows.key_with_user(session, caller.credential)
            assert found is not None
            key: ApiKeyRow = found[0]
            await accounts.revoke_key(session, caller, key.id, live.services.now())
        assert await close_code(socket) == 4401


async def test_a_client_that_takes_nothing_is_given_up_and_one_with_nothing_to_take_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SEND_SECONDS", 0.05)

    class Deaf:
        async def send_text(self, text: str) -> None:
            await asyncio.Event().wait()

    follower = Follower(cast(WebSocket, Deaf()), cast(Services, None), MetricsSource("j"))
    stuck = asyncio.create_task(follower.stuck())
    done, _ = await asyncio.wait([stuck], timeout=0.3)
    assert not done
    sending = asyncio.create_task(follower._send(encoded("metrics", Frame(1, "record", {}))))
    assert await asyncio.wait_for(stuck, 10) == streams.TOO_SLOW
    sending.cancel()


async def test_a_client_that_takes_each_frame_in_time_is_not_given_up_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(streams, "SEND_SECONDS", 0.01)
    monkeypatch.setattr(streams, "monotonic", lambda: clock[0])

    class Slow:
        async def send_text(self, text: str) -> None:
            clock[0] += 0.006
            await asyncio.wait([stuck], timeout=0.02)

    follower = Follower(cast(WebSocket, Slow()), cast(Services, None), MetricsSource("j"))
    stuck = asyncio.create_task(follower.stuck())
    await follower._send(*[encoded("metrics", Frame(seq, "record", {})) for seq in range(1, 5)])
    assert not stuck.done()
    stuck.cancel()


async def test_a_server_that_stops_waits_for_no_stream(live: Live) -> None:
    async with live.metrics() as socket:
        await frame(socket)
        live.server.should_exit = True
        assert await close_code(socket) in (1001, 1012)


async def test_a_client_that_leaves_leaves_nothing_behind(live: Live) -> None:
    names = {"run", "stuck", "_until_peer_leaves", "_until_revoked"}

    def serving() -> set[str]:
        return names & {task.get_coro().__name__ for task in asyncio.all_tasks()}  # type: ignore[union-attr]

    async with live.metrics() as socket:
        await frame(socket)
        assert serving() == names
    await until(lambda: not serving(), "the end of the socket's tasks")


async def test_readings_of_nodes_stream_with_their_columns_and_resume(live: Live) -> None:
    async with live.services.write() as session:
        node, _ = await factories.create_node(session, name="read")
    columns = {"gpu:0": {"power_watts": [1.0, 2.0, 3.0]}, "host": {"cpu_percent": [4.0, 5.0, 6.0]}}
    async with live.socket(f"/cluster/stream?node_id={node.id}") as socket:
        hello = await frame(socket)
        assert (hello["type"], hello["topic"]) == ("hello", "readings")
        await readings.store(live.services, "other", 500.0, columns)
        await readings.store(live.services, node.id, 1_000.0, columns)
        record = await frame(socket)
    assert record["type"] == "record"
    assert record["data"] == {"node_id": node.id, "times": [1_000.0, 1_001.0, 1_002.0], "columns": columns}
    async with live.socket(f"/cluster/stream?after={hello['seq']}") as socket:
        await frame(socket)
        nodes = [(await frame(socket))["data"]["node_id"] for _ in range(2)]
    assert nodes == ["other", node.id]


async def test_readings_that_cannot_be_read_do_not_end_the_stream(live: Live) -> None:
    async with live.socket("/cluster/stream") as socket:
        hello = await frame(socket)
        await readings.store(live.services, "bad", 500.0, {"host": {"cpu_percent": [1.0]}})
        await frame(socket)
    async with live.services.metrics.write() as session:
        await session.execute(update(NodeReadingRow).values(data=b"damaged"))
    await readings.store(live.services, "good", 500.0, {"host": {"cpu_percent": [1.0]}})
    async with live.socket(f"/cluster/stream?after={hello['seq']}") as socket:
        await frame(socket)
        found = [(await frame(socket))["data"] for _ in range(2)]
    assert [(each["node_id"], each["columns"]) for each in found] == [("bad", {}), ("good", {"host": {"cpu_percent": [1.0]}})]


async def test_the_stream_of_an_unknown_node_is_closed(live: Live) -> None:
    async with live.socket("/cluster/stream?node_id=nobody") as socket:
        assert await close_code(socket) == 4404


async def test_a_client_that_talks_without_end_is_sent_away(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MOST_MESSAGES", 3)
    async with live.metrics() as socket:
        for _ in range(3):
            await socket.send("hello?")
        assert await close_code(socket) == 4400


async def test_a_frame_of_40_mb_ends_its_own_stream_alone(live: Live) -> None:
    async with live.metrics() as bystander, live.metrics() as socket:
        await frame(bystander)
        await frame(socket)
        with suppress(ConnectionClosed):  # it may be cut off while it is sent
            await socket.send("x" * (40 << 20))
        assert await close_code(socket) == 1009
        await live.store(1, 1)
        assert await steps(bystander, 1) == [1]
