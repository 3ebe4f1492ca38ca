"""A client and a keeper over the real app: frames pass both ways, and each end of a session is told and noted."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, WebSocket

from paceline.api.core import bus
from paceline.api.core.context import Services
from paceline.api.websocket import exec_sessions as module
from paceline.api.websocket.exec_broker import NO_COMMANDS, ExecBroker
from paceline.cluster.exec_frames import ELSEWHERE, KEEPER_PATH, MOST_FRAME_BYTES, NO_IDENTITY, REFUSED
from paceline.cluster.protocol import OpenExec, ToAgent
from paceline.cluster.states import RankState
from paceline.db.models.identity import UserRow
from paceline.db.models.jobs import RankRow
from tests import factories
from tests.asgi_socket import AsgiSocket, SocketClosedError

pytestmark = pytest.mark.timeout(120)
START = '{"type":"start","command":["id"]}'


@dataclass
class Site:
    """A running job of one rank, the admin's key, and the node that it is on."""

    app: FastAPI
    key: str
    job_id: str
    node_id: str
    credential: str
    told: asyncio.Queue[ToAgent]

    @property
    def broker(self) -> ExecBroker:
        broker: ExecBroker = self.app.state.exec_broker
        return broker

    async def send(self, message: ToAgent) -> None:
        self.told.put_nowait(message)

    async def client(self, *, most_unread: int = 0, **headers: str) -> AsgiSocket:
        path, headers = f"/api/v1/training/jobs/{self.job_id}/exec", {"Authorization": f"Bearer {self.key}"} | headers
        socket = AsgiSocket(self.app, path, headers, most_unread=most_unread)
        await socket.open()
        return socket

    async def keeper(self, session_id: str, credential: str | None = None) -> AsgiSocket:
        socket = AsgiSocket(self.app, KEEPER_PATH + session_id, {"Authorization": f"Bearer {credential or self.credential}"})
        await socket.open()
        return socket

    @asynccontextmanager
    async def pair(self, *, most_unread: int = 0) -> AsyncIterator[tuple[AsgiSocket, AsgiSocket]]:
        """A client, and the keeper that its agent has started; the frame that starts it was read."""
        with self.broker.channel(self.node_id, self.send):
            client = await self.client(most_unread=most_unread)
            await client.send(START)
            order = await asyncio.wait_for(self.told.get(), 30)
            assert isinstance(order, OpenExec)
            assert (order.key.job_id, order.key.generation, order.key.rank) == (self.job_id, 1, 0)
            keeper = await self.keeper(order.id)
            assert json.loads(await keeper.receive())["command"] == ["id"]
            yield client, keeper
            for socket in (client, keeper):
                with suppress(SocketClosedError):
                    await socket.close()


@pytest.fixture
async def site(app: FastAPI, services: Services, admin_key: str) -> Site:
    async with services.write() as session:
        node, credential = await factories.create_node(session)
        job = await factories.create_running_job(session, node)
        (await session.get_one(RankRow, (job.id, 1, 0))).state = RankState.RUNNING
    return Site(app, admin_key, job.id, node.id, credential, asyncio.Queue())


async def ended(socket: AsgiSocket) -> str:
    """The code of the word with which a client is sent away. It closes the connection itself, once it has read that."""
    word: dict[str, Any] = json.loads(await socket.receive())
    assert word["type"] == "ended"
    await socket.close()
    return str(word["code"])


async def refused(socket: AsgiSocket) -> tuple[str, int]:
    """The code of the word with which a client is refused, and the close code."""
    word: dict[str, Any] = json.loads(await socket.receive())
    with pytest.raises(SocketClosedError) as closed:
        await socket.receive()
    return word["code"], closed.value.code


async def closing_words(client: httpx.AsyncClient, site: Site) -> str:
    """The history's words on the end of the job's only session."""
    async with asyncio.timeout(30):
        while True:
            events = (await client.get(f"/api/v1/training/jobs/{site.job_id}/events")).json()["items"]
            if found := [event["message"] for event in events if event["type"] == "exec.closed"]:
                (text,) = found
                return str(text)
            await asyncio.sleep(0.05)


async def test_frames_pass_both_ways_unchanged_and_the_exit_code_is_noted(site: Site, client: httpx.AsyncClient) -> None:
    async with site.pair() as (user, keeper):
        await keeper.send('{"type":"started","node":"a","rank":0,"generation":1,"command":["id"]}')
        assert json.loads(await user.receive())["type"] == "started"
        await keeper.send_bytes(b"\x01out\xff\x00")
        assert await user.receive_bytes() == b"\x01out\xff\x00"
        await user.send_bytes(b"\x00in")
        assert await keeper.receive_bytes() == b"\x00in"
        for text in ('{"type":"size","rows":5,"columns":6}', '{"type":"signal","name":"INT"}', '{"type":"taken","bytes":4}'):
            await user.send(text)
            assert await keeper.receive() == text
        await keeper.send('{"type":"exited","exit_code":7}')
        assert json.loads(await user.receive())["exit_code"] == 7
        with pytest.raises(SocketClosedError):
            await keeper.receive()
    assert "by admin: exit code 7 after" in await closing_words(client, site)


async def test_the_exit_code_is_noted_though_the_client_leaves_while_it_is_sent(site: Site, client: httpx.AsyncClient) -> None:
    async with site.pair(most_unread=1) as (user, keeper):
        await keeper.send('{"type":"started","node":"a","rank":0,"generation":1,"command":["id"]}')
        await keeper.send('{"type":"exited","exit_code":7}')  # waits behind the first, which nobody reads
        await asyncio.wait_for(keeper.everything_read(), 30)
        await user.close()
    assert re.search(r"by admin: exit code 7 after \d+ s\Z", await closing_words(client, site))


async def test_the_exit_code_is_noted_though_input_no_longer_reaches_the_keeper(
    site: Site, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_bytes = WebSocket.send_bytes

    async def fail(self: WebSocket, data: bytes) -> None:
        if data == b"late":
            raise RuntimeError("the peer has closed")
        await send_bytes(self, data)

    monkeypatch.setattr(WebSocket, "send_bytes", fail)
    async with site.pair() as (user, keeper):
        await user.send_bytes(b"late")
        await asyncio.wait_for(user.everything_read(), 30)
        await keeper.send('{"type":"exited","exit_code":7}')
        assert json.loads(await user.receive())["exit_code"] == 7
        await user.close()
    assert re.search(r"by admin: exit code 7 after \d+ s\Z", await closing_words(client, site))


async def test_a_client_that_leaves_ends_its_keeper(site: Site, client: httpx.AsyncClient) -> None:
    async with site.pair() as (user, keeper):
        await user.close()
        with pytest.raises(SocketClosedError):
            await keeper.receive()
    assert (await closing_words(client, site)).endswith("; its client left")


async def test_a_keeper_that_is_lost_is_told_to_the_client(site: Site, client: httpx.AsyncClient) -> None:
    async with site.pair() as (user, keeper):
        await keeper.close()
        assert await ended(user) == "node_away"
    assert "the connection to the rank's node is lost" in await closing_words(client, site)


@pytest.mark.parametrize("frame", ["no json", '{"type":"signal","name":"KILL"}', b"x" * (MOST_FRAME_BYTES + 1)])
async def test_a_client_that_breaks_the_protocol_is_sent_away(site: Site, frame: str | bytes) -> None:
    async with site.pair() as (user, _):
        await (user.send(frame) if isinstance(frame, str) else user.send_bytes(frame))
        assert await ended(user) == "invalid_request"


@pytest.mark.parametrize(("limit", "code"), [({"exec_idle_minutes": 0.01}, "idle"), ({"exec_hours": 0.0002}, "too_long")])
async def test_a_session_ends_at_its_limits(site: Site, services: Services, limit: dict[str, float], code: str) -> None:
    object.__setattr__(services, "settings", services.settings.model_copy(update=limit))
    async with site.pair() as (user, _):
        assert await ended(user) == code


async def test_a_key_that_is_revoked_ends_the_session(site: Site, client: httpx.AsyncClient) -> None:
    async with site.pair() as (user, _):
        (key,) = (await client.get("/api/v1/keys")).json()["items"]
        await client.delete(f"/api/v1/keys/{key['id']}")
        assert await ended(user) == "forbidden"


async def test_an_admin_who_becomes_a_member_leaves_the_jobs_of_others(site: Site, services: Services) -> None:
    async with services.write() as session:
        user, site.key = await factories.create_user(session, name="ben")
    async with site.pair() as (ben, _):
        async with services.write() as session:
            (await session.get_one(UserRow, user.id)).role = "member"
        services.bus.publish(bus.IDENTITY)
        assert await ended(ben) == "forbidden"


async def test_who_is_not_signed_in_or_comes_from_another_page_is_refused(site: Site) -> None:
    strangers: list[dict[str, Any]] = [
        {"Authorization": "Bearer pk_wrong"},
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    ]
    for headers in strangers:
        socket = await site.client(**headers)
        assert await refused(socket) == ("not_authenticated", NO_IDENTITY)


@pytest.mark.parametrize(
    ("start", "code"),
    [("no json", "invalid_request"), ('{"type":"start","rank":9}', "rank_not_running"), ('{"type":"start","rows":0}', "invalid_request")],
)
async def test_a_start_that_cannot_be_is_refused_with_the_reason(site: Site, start: str, code: str) -> None:
    socket = await site.client()
    await socket.send(start)
    assert await refused(socket) == (code, REFUSED)


async def test_a_node_whose_agent_runs_no_commands_is_said_to(site: Site) -> None:
    with site.broker.channel(site.node_id, None):
        socket = await site.client()
        await socket.send(START)
        word = json.loads(await socket.receive())
        assert (word["code"], word["message"]) == ("node_away", NO_COMMANDS)
        await socket.close()


async def test_a_second_channel_of_a_node_takes_the_place_of_the_first(site: Site) -> None:
    """An agent connects again before its old connection is known to be gone: whose end comes first does not matter."""
    first, second = site.broker.channel(site.node_id, None), site.broker.channel(site.node_id, None)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    socket = await site.client()
    await socket.send(START)
    assert json.loads(await socket.receive())["message"] == NO_COMMANDS
    await socket.close()
    second.__exit__(None, None, None)


async def test_a_keeper_that_does_not_come_is_not_waited_for_for_ever(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEPER_SECONDS", 0.3)
    socket = await site.client()
    await socket.send(START)
    assert await ended(socket) == "node_away"


async def test_a_keeper_without_its_client_here_or_of_another_node_is_sent_elsewhere(site: Site, services: Services) -> None:
    async with services.write() as session:
        _, other = await factories.create_node(session, name="other")
    with pytest.raises(SocketClosedError) as unknown:
        await (await site.keeper("no-such-session")).receive()
    assert unknown.value.code == ELSEWHERE
    with pytest.raises(SocketClosedError) as stranger:
        await (await site.keeper("any", credential="wrong")).receive()
    assert stranger.value.code == NO_IDENTITY
    with site.broker.channel(site.node_id, site.send):
        user = await site.client()
        await user.send(START)
        order = await asyncio.wait_for(site.told.get(), 30)
        assert isinstance(order, OpenExec)
        with pytest.raises(SocketClosedError) as thief:
            await (await site.keeper(order.id, credential=other)).receive()
        assert thief.value.code == ELSEWHERE
        await user.close()
