"""Many uploads at once, slow ones, and a database that is away: nobody waits for a connection that somebody idle holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import msgspec
import pytest
from fastapi import FastAPI
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import create_async_engine

from paceline.api.core.admission import Admission
from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.errors import ProblemError
from paceline.api.main import create_app
from paceline.api.services.lifecycle import node_lifecycle
from paceline.api.settings import Settings
from paceline.cluster.protocol import UPLOAD_PATH
from paceline.cluster.states import NodeState
from paceline.db import session as databases
from paceline.db.errors import DatabaseAwayError
from paceline.db.models.nodes import NodeRow
from paceline.monitoring.points import Upload
from tests import factories
from tests.api.conftest import Agent
from tests.conftest import Connect
from tests.ports import free_port

JOBS = "/api/v1/training/jobs"
SECONDS = 20.0


async def test_forty_slow_uploads_at_once_hold_no_connection(agent: Agent, client: httpx.AsyncClient) -> None:
    """More than either pool has connections: each once kept one while its body was on the way, and then waited for a second one."""
    body = msgspec.json.encode(Upload(batches=[agent.batch(metrics=factories.records(1, 3))]))
    arrives, under_way = asyncio.Event(), asyncio.Semaphore(0)

    async def slowly() -> AsyncIterator[bytes]:
        yield body[:10]
        under_way.release()
        await arrives.wait()
        yield body[10:]

    headers = {"Content-Length": str(len(body))}
    uploads = [asyncio.create_task(agent.client.post(UPLOAD_PATH, content=slowly(), headers=headers, timeout=SECONDS)) for _ in range(40)]
    async with asyncio.timeout(SECONDS):
        for _ in uploads:
            await under_way.acquire()
        assert (await client.get(JOBS)).status_code == 200
        arrives.set()
        answers = await asyncio.gather(*uploads)
    assert {answer.status_code for answer in answers} == {200}


async def test_the_body_of_an_upload_is_not_read_before_its_turn(agent: Agent, app: FastAPI) -> None:
    door: Admission = app.state.upload_admission
    door.wait_seconds = 0.05
    read: list[bytes] = []

    async def body() -> AsyncIterator[bytes]:
        read.append(b'{"batches":[]}')
        yield read[-1]

    async with door.turn(door.limit):
        answer = await agent.client.post(UPLOAD_PATH, content=body())
    assert (answer.status_code, answer.json()["code"], read) == (503, "busy", [])
    assert (await agent.client.post(UPLOAD_PATH, content=body())).status_code == 200


async def test_a_removed_nodes_credential_is_refused_at_once(agent: Agent, services: Services, node: tuple[NodeRow, str]) -> None:
    assert (await agent.send()).status_code == 200
    async with services.write() as session:
        row = await session.get_one(NodeRow, node[0].id)
        await node_lifecycle.move(session, row, NodeState.GONE, SYSTEM, "removed", services.now())
    answer = await agent.send()
    assert (answer.status_code, answer.json()["code"]) == (403, "node_removed")


async def test_turns_are_bounded_and_come_in_order() -> None:
    door = Admission("bytes", 10, wait_seconds=0.05)
    served: list[int] = []

    async def serve(number: int, size: int) -> None:
        async with door.turn(size):
            served.append(number)

    async with door.turn(8):
        with pytest.raises(ProblemError, match="8 of 10 bytes are under way") as refused:
            await serve(0, 5)
        assert refused.value.headers == {"Retry-After": "1"}
        door.wait_seconds = 60.0
        waiting = [asyncio.create_task(serve(number, size)) for number, size in ((1, 100), (2, 1))]
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.gather(waiting[1], return_exceptions=True)
    await waiting[0]
    assert (served, door.used) == ([1], 0)


async def test_a_statement_that_is_wrong_is_no_busy_database(services: Services) -> None:
    with pytest.raises(Exception, match="nonsense") as wrong:
        async with services.control.read() as session:
            await session.execute(text("SELECT nonsense"))
    assert not isinstance(wrong.value, DatabaseAwayError)


async def test_a_pool_without_a_free_connection_is_busy(services: Services, client: httpx.AsyncClient) -> None:
    async with _all_connections(services):
        services.control.engine.sync_engine.pool._timeout = 0.05  # type: ignore[attr-defined]
        answer = await client.get(JOBS)
    assert (answer.status_code, answer.json()["code"], answer.headers["Retry-After"]) == (503, "busy", "1")
    assert (await client.get(JOBS)).status_code == 200


@asynccontextmanager
async def _all_connections(services: Services) -> AsyncIterator[None]:
    held = [services.control.engine.connect() for _ in range(32 if services.control.is_sqlite else 30)]
    try:
        for each in held:
            await each.start()
        yield
    finally:
        for each in held:
            await each.close()


@dataclass
class Line:
    """A server's address that can be cut off and reached again."""

    target: tuple[str, int]
    _server: asyncio.Server | None = None
    _open: set[asyncio.StreamWriter] = field(default_factory=set)
    port: int = field(default_factory=free_port)  # which no outgoing connection gets while the line is cut off

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self.port)

    async def cut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self.target)
        self._open |= {writer, back}
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer), return_exceptions=True)
        for each in (writer, back):
            each.transport.abort()

    @staticmethod
    async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
        sink.transport.abort()


@pytest.mark.parametrize("settings", ["postgresql"], indirect=True)
async def test_while_postgresql_is_away_answers_are_busy_and_not_a_bug(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        databases, "create_async_engine", create_async_engine
    )  # with a dialect of its own, which listens for failed connections
    url = make_url(str(settings.database_url))
    line = Line((url.host or "127.0.0.1", url.port or 5432))
    await line.open()
    behind = url.set(host="127.0.0.1", port=line.port).render_as_string(hide_password=False)
    app = create_app(settings.model_copy(update={"database_url": behind}), with_loops=False)
    async with app.router.lifespan_context(app), asyncio.timeout(SECONDS):
        async with app.state.services.write() as session:
            _, key = await factories.create_user(session)
        async with Connect(app)(key) as client:
            assert (await client.get(JOBS)).status_code == 200
            await line.cut()
            for _ in range(3):
                answer = await client.get(JOBS)
                assert (answer.status_code, answer.json()["code"], answer.headers["Retry-After"]) == (503, "busy", "1")
            await line.open()
            assert (await client.get(JOBS)).status_code == 200
    await line.cut()
