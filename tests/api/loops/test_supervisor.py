"""The loops run by themselves in a coordinator that is started the usual way, and what is submitted reaches an agent at once."""

from __future__ import annotations

import asyncio
import time

import httpx

from paceline.api.main import create_app
from paceline.api.settings import Settings
from paceline.cluster.states import NodeState
from tests import factories
from tests.cluster.provisioners.kubernetes_server import KubernetesServer
from tests.simulated_agent import SimulatedAgent
from tests.waiting import until

WAIT_SECONDS = 20.0


async def until_running(client: httpx.AsyncClient, job_id: str) -> None:
    state = ""
    while state != "running":
        state = (await client.get(f"/api/v1/training/jobs/{job_id}")).json()["state"]
        await asyncio.sleep(0.01)


async def test_a_submitted_job_starts_without_anybody_stepping(settings: Settings) -> None:
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        services = app.state.services
        async with services.write() as session:
            _, key = await factories.create_user(session)
            _, credential = await factories.create_node(session, state=NodeState.JOINING, slots=0)
        agent = SimulatedAgent(app, credential)
        await agent.connect()
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8000", headers={"Authorization": f"Bearer {key}"}
        ) as client:
            body = factories.job_spec().model_dump(mode="json")
            submitted = time.monotonic()
            job_id = (await client.post("/api/v1/training/jobs", json=body)).json()["id"]
            async with asyncio.timeout(WAIT_SECONDS):
                await agent.first_start.wait()
                placed = time.monotonic() - submitted
                await until_running(client, job_id)
        print(f"submit to assignment: {1000 * placed:.0f} ms")
        await agent.disconnect()


async def test_a_pool_in_kubernetes_is_watched_from_look_to_look_and_until_the_coordinator_stops(settings: Settings) -> None:
    """Each look at a node, every two seconds, listed all Jobs and all pods."""
    app = create_app(settings)
    async with KubernetesServer().served() as server:
        async with app.router.lifespan_context(app):
            async with app.state.services.write() as session:
                _, key = await factories.create_user(session)
            transport, signed = httpx.ASGITransport(app=app), {"Authorization": f"Bearer {key}"}
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", headers=signed) as client:
                pool = {"name": "pods", "provider": {"type": "kubernetes", "image": "agent:1", "api_server": server.url}}
                assert (await client.put("/api/v1/cluster/pools/pods", json=pool)).status_code == 200
                assert (await client.post("/api/v1/cluster/nodes", json={"pool": "pods", "count": 1})).status_code == 201
                await until(lambda: sorted(server.open) == ["jobs", "pods"], "a watch of each kind", seconds=WAIT_SECONDS)
                lists = server.lists
                (pod,) = server.api.objects["pods"]
                server.api.change("pods", pod, status={"phase": "Running"})
                async with asyncio.timeout(WAIT_SECONDS):
                    while (await client.get("/api/v1/cluster/launches")).json()["items"][0]["state"] != "running":  # noqa: ASYNC110 - it is asked
                        await asyncio.sleep(0.01)
                assert server.lists <= lists + 2, "those of a look that was under way"
        await until(lambda: not server.open, "the end of the watches")
