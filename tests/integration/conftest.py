"""A whole cluster in one event loop: the real app, its loops stepped by hand, simulated agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import update

from paceline.api.core.context import Services, utc_now
from paceline.api.loops import retention, scheduler
from paceline.api.loops.nodes import NodeWatch
from paceline.cluster.states import NodeState
from paceline.credentials import hash_secret
from paceline.db.models.nodes import NodeRow
from tests import factories
from tests.simulated_agent import SimulatedAgent

UNTIL_SECONDS = 60.0  # a busy machine may be ten times slower than a quiet one
POLL_SECONDS = 0.01
JOBS = "/api/v1/training/jobs"
Seen = TypeVar("Seen")


@dataclass
class Cluster:
    app: FastAPI
    client: httpx.AsyncClient
    agents: list[SimulatedAgent] = field(default_factory=list)
    ahead: timedelta = timedelta()
    watch: NodeWatch | None = None
    #: Which agents' heartbeats go on coming while a test waits; None: those of all that are connected.
    alive: tuple[SimulatedAgent, ...] | None = None
    _heard_at: datetime | None = None
    _stands_at: datetime | None = None

    @property
    def services(self) -> Services:
        services: Services = self.app.state.services
        return services

    def now(self) -> datetime:
        """The one clock of the coordinator: what its loops and what its agents' reports go by."""
        return (self._stands_at or utc_now()) + self.ahead

    @contextmanager
    def standing_clock(self) -> Iterator[None]:
        """Nothing but `ahead` moves the clock meanwhile, however long a busy machine takes: for what is to happen within a second or two."""
        self._stands_at = utc_now()
        try:
            yield
        finally:
            self._stands_at = None

    async def add_agent(self, name: str = "a", slots: int = 2, **manner: Any) -> SimulatedAgent:
        async with self.services.write() as session:
            _, credential = await factories.create_node(
                session, name=name, state=NodeState.JOINING, slots=0, heartbeat_at=None, joined_at=self.services.now()
            )
        agent = SimulatedAgent(self.app, credential, slots=slots, **manner)
        self.agents.append(agent)
        await agent.connect()
        await self.until(lambda: agent.desired is not None, f"agent {name} is welcomed")
        return agent

    async def submit(self, **changes: Any) -> str:
        document = factories.job_spec(**changes).model_dump(mode="json")
        answer = await self.client.post(JOBS, json=document)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def ask(self, method: str, job_id: str, verb: str = "", body: Any = None) -> httpx.Response:
        revision = (await self.job(job_id))["revision"]
        return await self.client.request(method, f"{JOBS}/{job_id}{verb}", json=body, headers={"If-Match": f'"{revision}"'})

    async def job(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.client.get(f"{JOBS}/{job_id}")).json()
        return found

    async def events(self, job_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.client.get(f"{JOBS}/{job_id}/events", params={"limit": 200})).json()["items"]
        return found

    async def checkpoints(self, job_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.client.get(f"/api/v1/checkpoints/jobs/{job_id}")).json()["items"]
        return found

    async def nodes(self) -> dict[str, dict[str, Any]]:
        found = (await self.client.get("/api/v1/cluster/nodes", params={"status": "ready,cordoned,draining,unreachable,lost,gone"})).json()
        return {node["name"]: node for node in found["items"]}

    async def hear(self, *agents: SimulatedAgent) -> None:
        """As if a heartbeat of each had just come, at the cluster's own time."""
        credentials = [hash_secret(agent.credential) for agent in agents]
        async with self.services.write() as session:
            await session.execute(update(NodeRow).where(NodeRow.credential_hash.in_(credentials)).values(heartbeat_at=self.now()))

    async def elapse(self, seconds: float, *alive: SimulatedAgent) -> None:
        """Let the nodes watch live until it is this far ahead, while only `alive` are heard, now and afterwards.

        Where the machine stalls meanwhile, every node gets a fresh term, and the time is counted from there.
        """
        self.alive = alive
        end, fresh_since = timedelta(seconds=seconds), self.watch and self.watch.uptime.since
        while self.ahead < end:
            self.ahead += timedelta(seconds=1)
            await self.step_alive()
            if self.watch and self.watch.uptime.since != fresh_since:
                end, fresh_since = self.ahead + timedelta(seconds=seconds), self.watch.uptime.since

    async def step_alive(self) -> None:
        """One turn of every loop, however slow the machine is: what is alive is heard, at most once a second."""
        if self._heard_at is None or abs(self.now() - self._heard_at) >= timedelta(seconds=1):
            self._heard_at = self.now()
            await self.hear(*([agent for agent in self.agents if agent.connected] if self.alive is None else self.alive))
        await self.step()

    async def step(self) -> None:
        """One turn of every loop."""
        self.watch = self.watch or NodeWatch(self.services)
        await self.watch.step_once(self.now())
        await scheduler.step_once(self.services, self.now())
        await retention.step_once(self.services, self.now())

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        async with asyncio.timeout(UNTIL_SECONDS):
            while not condition():
                await self.step_alive()
                await asyncio.sleep(POLL_SECONDS)
        assert condition(), what

    async def until_seen(self, look: Callable[[], Awaitable[Seen]], condition: Callable[[Seen], bool]) -> Seen:
        async with asyncio.timeout(UNTIL_SECONDS):
            while not condition(seen := await look()):
                await self.step_alive()
                await asyncio.sleep(POLL_SECONDS)
        return seen

    async def until_node(self, name: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        return (await self.until_seen(self.nodes, lambda nodes: condition(nodes[name])))[name]

    async def until_placed(self, job_id: str, names: list[str]) -> dict[str, Any]:
        """Its members, in rank order, are on these nodes, and at work."""
        seen: list[str] = []
        try:
            async with asyncio.timeout(UNTIL_SECONDS):
                while True:
                    job = await self.job(job_id)
                    seen = [rank["node_name"] for rank in job["ranks"] if not rank["parked"]]
                    if seen == names and job["state"] == "running":
                        return job
                    await self.step_alive()
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            events = [event["message"] for event in await self.events(job_id)]
            raise AssertionError(f"its ranks are on {seen}, not {names}; events: {events}") from None

    async def until_checkpoints(self, job_id: str, condition: Callable[[list[dict[str, Any]]], bool]) -> None:
        await self.until_seen(lambda: self.checkpoints(job_id), condition)

    async def until_job(self, job_id: str, state: str, **fields: Any) -> dict[str, Any]:
        wanted = {"state": state, **fields}
        job = await self.job(job_id)
        try:
            async with asyncio.timeout(UNTIL_SECONDS):
                while {name: job[name] for name in wanted} != wanted:
                    await self.step_alive()
                    await asyncio.sleep(POLL_SECONDS)
                    job = await self.job(job_id)
        except TimeoutError:
            seen = {name: job[name] for name in (*wanted, "generation", "end_reason", "ranks")}
            raise AssertionError(f"job is {seen}, not {wanted}; events: {[e['message'] for e in await self.events(job_id)]}") from None
        return job


@pytest.fixture
async def cluster(app: FastAPI, client: httpx.AsyncClient) -> AsyncIterator[Cluster]:
    cluster = Cluster(app, client)
    app.state.services = replace(cluster.services, now=cluster.now)
    yield cluster
    for agent in cluster.agents:
        await agent.disconnect()
