"""Many jobs at once, with the loops running by themselves: everything ends, nothing fails on the way."""

from __future__ import annotations

import asyncio
import logging
import time

import httpx
import pytest

from paceline.api.main import create_app
from paceline.api.settings import Settings
from paceline.cluster.states import NodeState
from tests import factories
from tests.simulated_agent import SimulatedAgent

NODES, JOBS = 4, 12
WAIT_SECONDS = 110.0
PATH = "/api/v1/training/jobs"


async def complete_whatever_runs(agents: list[SimulatedAgent], client: httpx.AsyncClient) -> None:
    """Until every job has completed. The agents live meanwhile, or a slow machine would have their nodes unreachable after ten seconds."""
    while True:
        for agent in agents:
            await agent.heartbeat(time=time.time())
        done = (await client.get(PATH, params={"status": "completed", "limit": 200})).json()["items"]
        if len(done) == JOBS:
            return
        for job in (await client.get(PATH, params={"status": "running", "limit": 200})).json()["items"]:
            for agent in agents:
                if any(place[0] == job["id"] for place in agent.ranks):
                    await agent.complete(job["id"])
        await asyncio.sleep(0.05)


async def test_many_jobs_end_and_no_step_fails(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    app = create_app(settings)
    agents: list[SimulatedAgent] = []
    async with app.router.lifespan_context(app):
        async with app.state.services.write() as session:
            _, key = await factories.create_user(session)
            for index in range(NODES):
                _, credential = await factories.create_node(session, name=f"n{index}", state=NodeState.JOINING, slots=0)
                agents.append(SimulatedAgent(app, credential))
        await asyncio.gather(*(agent.connect() for agent in agents))
        transport = httpx.ASGITransport(app=app)
        headers = {"Authorization": f"Bearer {key}"}
        spec = factories.job_spec(resources={"nodes": 2}, parallelism={"strategy": "ddp"}).model_dump(mode="json")
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", headers=headers) as client,
            asyncio.timeout(WAIT_SECONDS),
        ):
            answers = await asyncio.gather(*(client.post(PATH, json=spec) for _ in range(JOBS)))
            assert {answer.status_code for answer in answers} == {201}
            await complete_whatever_runs(agents, client)
            jobs = (await client.get(PATH, params={"limit": 200})).json()["items"]
        for agent in agents:
            await agent.disconnect()
    assert [(job["generation"], job["restarts"]) for job in jobs] == [(1, 0)] * JOBS
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
