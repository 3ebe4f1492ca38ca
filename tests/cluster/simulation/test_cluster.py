"""Simulated nodes with a real coordinator, over real sockets: what users do, and what breaks."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from paceline.api.core.context import Services
from paceline.api.main import create_app
from paceline.api.services.nodes import joining
from paceline.api.settings import Settings
from paceline.cluster.simulation.clock import MOST_STEPS_PER_SECOND, SimulatedClock
from paceline.cluster.simulation.cluster import JoinFailedError, SimulatedCluster, join_all
from paceline.cluster.simulation.gang import GangSettings, step_in
from paceline.cluster.simulation.machines import H100, SimulatedMachine
from paceline.cluster.simulation.readings import INTERFACE
from tests import factories
from tests.waiting import until

SECONDS = 30.0


@dataclass(frozen=True)
class Scene:
    cluster: SimulatedCluster
    http: httpx.AsyncClient

    async def submit(self, name: str, nodes: int, steps: int = 400, *, faults: str = "", **more: Any) -> str:
        spec = {
            "name": name,
            "resources": {"nodes": nodes, "slots_per_node": 2, **more.pop("resources", {})},
            "model": {"kind": "gpt", "layers": 2, "heads": 2, "dim": 64, "context": 64},
            "data": {"kind": "stdlib_text"},
            "training": {"steps": steps, "global_batch_size": 32, "micro_batch_size": 2, "eval_every_steps": 5},
            "environment": {"variables": {"SIMULATED_FAULTS": faults}},
        }
        answer = await self.http.post("/training/jobs", json=spec | more)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def put(self, job: str, verb: str, body: object = None) -> None:
        revision = (await self.job(job))["revision"]
        answer = await self.http.put(f"/training/jobs/{job}/{verb}", json=body, headers={"If-Match": f'"{revision}"'})
        if answer.status_code == 412:
            return await self.put(job, verb, body)
        assert answer.is_success, answer.text
        return None

    async def job(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.http.get(f"/training/jobs/{job}")).raise_for_status().json()
        return found

    async def until_job(self, job: str, condition: Callable[[dict[str, Any]], object], what: str) -> dict[str, Any]:
        deadline = asyncio.get_running_loop().time() + SECONDS
        while not condition(now := await self.job(job)):
            assert asyncio.get_running_loop().time() < deadline, f"{what} did not happen within {SECONDS} s: {now}"
            await asyncio.sleep(0.05)
        return now

    async def steps_of(self, job: str) -> list[int]:
        """The steps whose loss is stored, over all ranks that have reported it."""
        curves = (await self.http.get(f"/metrics/jobs/{job}", params={"names": "loss"})).json()["curves"]
        return sorted(step for curve in curves for step in curve["steps"])


def running_on(ranks: int) -> Callable[[dict[str, Any]], bool]:
    return lambda job: job["state"] == "running" and job["world_size"] == ranks


def step_of(job: dict[str, Any]) -> int:
    return int((job["progress"] or {}).get("step") or 0)


@asynccontextmanager
async def scene(data: Path, nodes: int) -> AsyncIterator[Scene]:
    """A coordinator, its loops at work, and simulated nodes of two slots."""
    app = create_app(Settings(data=data, database_url=None, redis_url=None, print_login_link=False, heartbeat_seconds=0.3))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started, "the server's start", seconds=SECONDS)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    services: Services = app.state.services
    tokens = {}
    async with services.write() as session:
        _, key = await factories.create_user(session)
        for number in range(nodes):
            lifetime = timedelta(minutes=5)
            tokens[f"sim-{number}"], _ = await joining.create_join_token(session, created_by="t", now=services.now(), lifetime=lifetime)
    cluster = SimulatedCluster(url, GangSettings(SimulatedClock(speedup=20.0), H100, 2, seed=1))
    for name, credential in (await join_all(url, tokens)).items():
        cluster.add(SimulatedMachine(name, 2), credential)
    running = asyncio.create_task(cluster.run())
    headers = {"Authorization": f"Bearer {key}"}
    await until(lambda: all(agent.is_connected for agent in cluster.agents), "the nodes' connection", seconds=SECONDS)
    try:
        async with httpx.AsyncClient(base_url=f"{url}/api/v1", headers=headers, timeout=SECONDS) as http:
            yield Scene(cluster, http)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        server.should_exit = True
        await asyncio.wait_for(serving, SECONDS)


@pytest.fixture
def data(sqlite_template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sqlite_template, tmp_path / "data"))


#: So many that a pause still strikes where the machine is busy and a request takes seconds.
STEPS = 60


@pytest.mark.slow("waits for what a simulated cluster does with whole jobs")
async def test_a_job_runs_is_paused_resumed_and_completes(data: Path) -> None:
    async with scene(data, 2) as at:
        job = await at.submit("pausing", 2, steps=STEPS)
        await at.until_job(job, lambda now: step_of(now) >= 3, "training")
        await at.put(job, "pause")
        paused = await at.until_job(job, lambda now: now["state"] == "paused", "the pause")
        await at.put(job, "resume")
        done = await at.until_job(job, lambda now: now["state"] == "completed", "the end")
        assert (step_of(done), done["restarts"]) == (STEPS, 0)
        curves = (await at.http.get(f"/metrics/jobs/{job}", params={"names": "loss"})).json()["curves"]
        assert curves[-1]["steps"][0] == step_of(paused) + 1  # nothing was lost, nothing done again
        names = {each["step"] for each in (await at.http.get(f"/checkpoints/jobs/{job}")).json()["items"]}
        assert names == {step_of(paused), STEPS}
        nodes = (await at.http.get("/cluster/nodes")).json()["items"]
        assert {(node["platform"], node["labels"]["simulated"], len(node["gpus"])) for node in nodes} == {("simulated", "true", 2)}


async def test_a_node_that_dies_costs_no_step_and_its_job_is_grown_back(data: Path) -> None:
    async with scene(data, 3) as at:
        job = await at.submit("node-death", 2, resources={"min_nodes": 1})
        before = await at.until_job(job, lambda now: step_of(now) >= 4, "training")
        victim = next(agent for agent in at.cluster.agents if agent.members)
        victim.die()
        grown = await at.until_job(job, lambda now: running_on(4)(now) and now["generation"] > 1, "growing back")
        assert grown["restarts"] == 0
        assert step_of(grown) >= step_of(before)
        (incident,) = (await at.http.get(f"/training/jobs/{job}/incidents")).json()
        assert incident["steps_lost"] in (0, None)


async def test_a_job_is_resized_at_a_step_boundary_both_ways(data: Path) -> None:
    async with scene(data, 3) as at:
        job = await at.submit("resizing", 1, resources={"max_nodes": 3})
        await at.until_job(job, lambda now: step_of(now) >= 3, "training")
        for nodes in (3, 1):
            await at.put(job, "resize", {"nodes": nodes})
            now = await at.until_job(job, running_on(2 * nodes), f"resizing to {nodes} nodes")
        await at.until_job(job, lambda later: step_of(later) > step_of(now), "training on")
        deadline = asyncio.get_running_loop().time() + SECONDS
        while (steps := await at.steps_of(job)) != list(range(1, len(steps) + 1)):  # each node uploads for itself, in its own time
            assert asyncio.get_running_loop().time() < deadline, f"within {SECONDS} s no gapless curve: {steps}"
            await asyncio.sleep(0.1)


@pytest.mark.slow("waits for what a simulated cluster does with whole jobs")
async def test_ranks_that_hang_crash_and_raise_are_found_as_real_ones_are(data: Path) -> None:
    async with scene(data, 4) as at:
        hangs = await at.submit("hangs", 2, faults="hang@4:1")
        raises = await at.submit("raises", 1, faults="exception@3", fault_tolerance={"max_restarts": 0})
        killed = await at.submit("killed", 1, faults="crash@5:1")
        failed = await at.until_job(raises, lambda now: now["state"] == "failed", "the failure")
        assert "target 50431" in failed["failure"]["message"]
        await at.until_job(killed, lambda now: now["generation"] > 1 and step_of(now) > 8, "training on without the killed rank")
        hung = await at.until_job(hangs, lambda now: now["generation"] > 1 and step_of(now) > 6, "training on without the hung rank")
        assert hung["restarts"] == 0
        (incident, *_) = (await at.http.get(f"/training/jobs/{hangs}/incidents")).json()
        assert "stopped by a signal" in incident["why"]


async def test_cards_hosts_and_interfaces_have_their_readings_as_of_a_real_node(data: Path) -> None:
    async with scene(data, 1) as at:
        (node,) = (await at.http.get("/cluster/nodes")).json()["items"]
        deadline = asyncio.get_running_loop().time() + SECONDS
        while not (curves := (await at.http.get(f"/cluster/nodes/{node['id']}/metrics")).json()["curves"]):
            assert asyncio.get_running_loop().time() < deadline, f"no readings within {SECONDS} s"
            await asyncio.sleep(0.2)
        assert {(curve["card"], curve["interface"]) for curve in curves} == {(None, None), (0, None), (1, None), (None, INTERFACE)}


async def test_a_used_token_is_a_refusal_that_says_so(data: Path) -> None:
    async with scene(data, 1) as at:
        with pytest.raises(JoinFailedError, match="refused to let node other join"):
            await join_all(at.cluster.server, {"other": "pj_nothing"})


def test_a_step_takes_as_long_as_is_modelled_but_no_more_are_shown_than_can_be_stored() -> None:
    assert SimulatedClock(speedup=60.0).of_step(60.0) == 1.0
    assert SimulatedClock(speedup=60.0).of_step(0.1) == 1 / MOST_STEPS_PER_SECOND
    assert SimulatedClock(speedup=60.0, running_ranks=6_000).of_step(0.1) == 2.0


def test_the_step_of_a_checkpoint_stands_in_its_folder() -> None:
    assert (step_in("/a/step-120.g3"), step_in("/a/other")) == (120, 0)
