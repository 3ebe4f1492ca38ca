"""Two coordinators on one PostgreSQL and one Redis. Looking again takes a minute here, so what comes sooner came by a nudge."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from paceline.api.core.bus import Bus
from paceline.api.core.context import Services
from paceline.api.loops import lease_loop, nodes, scheduler, supervisor
from paceline.api.main import create_app
from paceline.api.settings import Settings
from paceline.api.websocket import streams, tails
from paceline.cluster.states import NodeState
from paceline.db.models.leases import LeaseRow
from tests import factories
from tests.asgi_socket import AsgiSocket, SocketClosedError
from tests.conftest import BASE_URL
from tests.private_redis import PrivateRedis
from tests.simulated_agent import SimulatedAgent
from tests.waiting import until

LOOK_AGAIN_SECONDS = 60.0
ARRIVES_SECONDS = 20.0  # a third of that
#: Redis is tried again every 5 s at least.
BACK_SECONDS = 10.0
ANSWER_SECONDS = 2.0
QUIET_SECONDS = 0.4
JOBS = "/api/v1/training/jobs"

pytestmark = pytest.mark.parametrize("settings", ["postgresql"], indirect=True)


@dataclass(frozen=True)
class Replica:
    app: FastAPI
    client: httpx.AsyncClient
    agents: list[SimulatedAgent] = field(default_factory=list)

    @property
    def services(self) -> Services:
        services: Services = self.app.state.services
        return services

    @property
    def bus(self) -> Bus:
        return self.services.bus

    async def submit(self) -> str:
        async with asyncio.timeout(ANSWER_SECONDS):
            answer = await self.client.post(JOBS, json=factories.job_spec().model_dump(mode="json"))
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def until_job(self, job_id: str, state: str) -> None:
        async with asyncio.timeout(ARRIVES_SECONDS):
            while (await self.client.get(f"{JOBS}/{job_id}")).json()["state"] != state:  # noqa: ASYNC110 - others change it
                await asyncio.sleep(0.02)

    async def agent(self, credential: str) -> SimulatedAgent:
        agent = SimulatedAgent(self.app, credential)
        self.agents.append(agent)
        await agent.connect()
        await until(lambda: agent.desired is not None, "the agent is welcomed")
        return agent

    async def follow(self, key: str) -> AsgiSocket:
        socket = AsgiSocket(self.app, "/api/v1/events/stream", {"Authorization": f"Bearer {key}"})
        await socket.open()
        assert json.loads(await socket.receive())["type"] == "hello"
        return socket


@dataclass(frozen=True)
class Pair:
    """Only `a` runs the loops."""

    a: Replica
    b: Replica
    key: str


@asynccontextmanager
async def replica(settings: Settings, *, with_loops: bool) -> AsyncIterator[Replica]:
    app = create_app(settings, with_loops=with_loops)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=BASE_URL) as client,
    ):
        replica = Replica(app, client)
        try:
            yield replica
        finally:
            for agent in replica.agents:
                await agent.disconnect()


@asynccontextmanager
async def pair(settings: Settings) -> AsyncIterator[Pair]:
    async with replica(settings, with_loops=True) as a, replica(settings, with_loops=False) as b:
        async with a.services.write() as session:
            _, key = await factories.create_user(session, name="grace")
        for each in (a, b):
            each.client.headers["Authorization"] = f"Bearer {key}"
        await until_both_hear(a, b)
        yield Pair(a, b, key)


@pytest.fixture(autouse=True)
def _look_again_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "SCHEDULER_SECONDS", LOOK_AGAIN_SECONDS)
    monkeypatch.setattr(nodes, "INTERVAL_SECONDS", LOOK_AGAIN_SECONDS)
    monkeypatch.setattr(streams, "OTHER_REPLICAS_SECONDS", LOOK_AGAIN_SECONDS)
    monkeypatch.setattr(tails, "OTHER_REPLICAS_SECONDS", LOOK_AGAIN_SECONDS)


@pytest.fixture
async def two(settings: Settings, redis_url: str) -> AsyncIterator[Pair]:
    changes = {"redis_url": redis_url, "observe_seconds": LOOK_AGAIN_SECONDS}
    async with pair(settings.model_copy(update=changes)) as two:
        yield two


async def until_both_hear(a: Replica, b: Replica) -> None:
    """Until each hears the other: whatever a replica says when it connects is over then, and explains nothing that follows."""
    for speaker, hearer in ((a, b), (b, a)):
        with hearer.bus.subscribe("way") as way:
            async with asyncio.timeout(BACK_SECONDS):
                speaker.bus.publish("way")
                while not await way.wait(0.1):
                    speaker.bus.publish("way")


async def node_credential(services: Services) -> str:
    async with services.write() as session:
        _, credential = await factories.create_node(session, state=NodeState.JOINING, slots=0, heartbeat_at=None, joined_at=services.now())
    return credential


async def job_submitted(socket: AsgiSocket, job_id: str) -> dict[str, Any]:
    """The next event of a stream about the submission of this job."""
    while True:
        frame: dict[str, Any] = json.loads(await socket.receive())
        if frame["type"] == "event" and (frame["data"]["type"], frame["data"]["job_id"]) == ("job.submitted", job_id):
            return frame


async def drain(socket: AsgiSocket) -> list[str]:
    """What comes until nothing does for a while."""
    frames: list[str] = []
    with contextlib.suppress(TimeoutError):
        while True:
            frames.append(await asyncio.wait_for(socket.receive(), QUIET_SECONDS))
    return frames


async def close_code(socket: AsgiSocket) -> int:
    try:
        async with asyncio.timeout(ARRIVES_SECONDS):
            while True:
                await socket.receive()
    except SocketClosedError as closed:
        return closed.code


async def test_a_job_submitted_at_one_replica_runs_on_an_agent_of_the_other(two: Pair) -> None:
    agent = await two.b.agent(await node_credential(two.b.services))
    job_id = await two.a.submit()
    await asyncio.wait_for(agent.first_start.wait(), ARRIVES_SECONDS)
    await two.a.until_job(job_id, "running")
    await agent.complete(job_id)
    await two.a.until_job(job_id, "completed")


async def test_a_second_connection_supersedes_the_first_at_another_replica(two: Pair) -> None:
    credential = await node_credential(two.a.services)
    first = await two.a.agent(credential)
    second = await two.b.agent(credential)
    await until(lambda: first.closed_with is not None, "the first is told", seconds=ARRIVES_SECONDS)
    assert first.refused is not None
    assert first.refused.code == "superseded"
    await two.a.submit()
    await asyncio.wait_for(second.first_start.wait(), ARRIVES_SECONDS)


async def test_a_key_revoked_at_one_replica_closes_streams_of_the_other(two: Pair) -> None:
    created = (await two.a.client.post("/api/v1/keys", json={"name": "short-lived"})).json()
    socket = await two.b.follow(created["key"])
    answer = await two.a.client.delete(f"/api/v1/keys/{created['id']}")
    assert answer.status_code == 204
    assert await close_code(socket) == streams.NO_IDENTITY


async def test_requests_go_on_without_redis_and_nudges_flow_again_after_it(settings: Settings, private_redis: PrivateRedis) -> None:
    async with pair(settings.model_copy(update={"redis_url": private_redis.url})) as two:
        socket = await two.b.follow(two.key)
        await job_submitted(socket, await two.a.submit())
        private_redis.kill()
        await drain(socket)
        meanwhile = await two.a.submit()
        assert (await two.b.client.get("/readyz")).status_code == 200
        assert await drain(socket) == []
        private_redis.start()
        await job_submitted(socket, meanwhile)
        await until_both_hear(two.a, two.b)
        await job_submitted(socket, await two.a.submit())
        await socket.close()


async def test_one_replica_runs_the_loops_and_the_other_takes_over(
    settings: Settings, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped: list[Services] = []
    step_once = scheduler.Scheduler.step_once

    async def counted(self: scheduler.Scheduler, now: datetime) -> None:
        stepped.append(self.services)
        await step_once(self, now)

    monkeypatch.setattr(supervisor, "SCHEDULER_SECONDS", 0.05)
    monkeypatch.setattr(lease_loop, "LEASE_SECONDS", LOOK_AGAIN_SECONDS)  # it is given back, not left to run out
    monkeypatch.setattr(scheduler.Scheduler, "step_once", counted)
    shared = settings.model_copy(update={"redis_url": redis_url})
    async with AsyncExitStack() as first_life, replica(shared, with_loops=False) as watcher:
        first = await first_life.enter_async_context(replica(shared, with_loops=True))
        await until(lambda: len(stepped) >= 3, "the first replica's loop runs")
        async with replica(shared, with_loops=True) as second:
            count = len(stepped)
            await until(lambda: len(stepped) >= count + 20, "the loop goes on")
            assert {id(each) for each in stepped} == {id(first.services)}
            async with watcher.services.control.read() as session:
                assert await session.get(LeaseRow, "scheduler") is not None
            await first_life.aclose()
            count = len(stepped)
            await until(lambda: len(stepped) >= count + 3, "the second takes over", seconds=ARRIVES_SECONDS)
            assert {id(each) for each in stepped[count:]} == {id(second.services)}
