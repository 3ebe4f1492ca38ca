"""Jobs whose agents go on by themselves while the coordinator is away for minutes: nothing that happened meanwhile is held against them."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from paceline.api.loops.lease_loop import LeaseLoop
from paceline.api.loops.scheduler import Scheduler
from paceline.cluster.states import JobState
from paceline.db.fencing import SKIPPED_GENERATIONS, fence_generations
from paceline.training.link import ProcessIdentity
from tests.integration.conftest import Cluster
from tests.simulated_agent import SimulatedAgent

AWAY_SECONDS = 180.0


async def come_back(cluster: Cluster) -> None:
    """The coordinator starts again after its outage: its scheduler takes a step before any agent could speak."""
    cluster.ahead += timedelta(seconds=AWAY_SECONDS)
    scheduler = LeaseLoop("scheduler", cluster.services, Scheduler(cluster.services).step_once, 1.0, waits_for_agents=True)
    assert await scheduler.step_once(cluster.now())


async def lose_coordinator(cluster: Cluster, *agents: SimulatedAgent) -> None:
    for agent in agents:
        await agent.lose_coordinator(cluster.app)


async def test_ranks_that_joined_while_the_coordinator_was_away_are_not_killed(cluster: Cluster) -> None:
    """They were said not to have joined, restarted, and everything since the newest checkpoint was lost; without a restart left, it failed."""
    agent = await cluster.add_agent("a")
    await lose_coordinator(cluster, agent)
    job_id = await cluster.submit(fault_tolerance={"max_restarts": 0})
    await cluster.step()
    assert (await cluster.job(job_id))["state"] == "starting"
    await come_back(cluster)
    assert (await cluster.job(job_id))["state"] == "starting"
    await agent.connect()
    job = await cluster.until_job(job_id, "running", generation=1)
    assert job["restarts"] == 0


async def test_a_job_that_saved_for_a_pause_while_the_coordinator_was_away_is_paused(cluster: Cluster) -> None:
    """It was said not to have saved, which cost a restart; without one left, it failed."""
    agent = await cluster.add_agent("a")
    job_id = await cluster.submit(fault_tolerance={"max_restarts": 0})
    await cluster.until_job(job_id, "running")
    await lose_coordinator(cluster, agent)
    assert (await cluster.ask("PUT", job_id, "/pause")).status_code == 200
    await cluster.step()
    assert (await cluster.job(job_id))["state"] == "stopping"
    await come_back(cluster)
    assert (await cluster.job(job_id))["state"] == "stopping"
    await agent.connect()
    job = await cluster.until_job(job_id, "paused")
    assert job["restarts"] == 0


async def test_a_job_that_was_to_start_again_when_the_coordinator_went_away_does_so(cluster: Cluster) -> None:
    """Its old ranks were said not to have ended, and it failed with restarts left."""
    a, b = await cluster.add_agent("a", slots=1), await cluster.add_agent("b", slots=1)
    fault_tolerance = {"max_restarts": 3, "recovery": "restart"}
    job_id = await cluster.submit(resources={"nodes": 2}, parallelism={"strategy": "ddp"}, fault_tolerance=fault_tolerance)
    job = await cluster.until_job(job_id, "running")
    crashing, other = (a, b) if job["ranks"][0]["node_name"] == "a" else (b, a)
    await lose_coordinator(cluster, other)
    await crashing.crash(job_id, 0)
    await cluster.until_job(job_id, "recovering")
    await come_back(cluster)
    assert (await cluster.job(job_id))["state"] == JobState.RECOVERING
    await other.connect()
    job = await cluster.until_job(job_id, "running", generation=2)
    assert job["restarts"] == 1


@pytest.mark.parametrize("moved_on_to", [1, 3])
async def test_a_job_goes_on_after_its_database_was_put_back(cluster: Cluster, moved_on_to: int) -> None:
    """Its agents are where they were at the backup, or have closed up and grown since: it stayed "running" for ever, and took no step."""
    agent = await cluster.add_agent("a", slots=1)
    job_id = await cluster.submit(fault_tolerance={"max_restarts": 0})
    await cluster.until_job(job_id, "running")
    await lose_coordinator(cluster, agent)
    living = agent.ranks.pop((job_id, 1, 0))
    birth = ProcessIdentity(generation=1, rank=0)
    living.world = msgspec.structs.replace(living.world, generation=moved_on_to, birth=birth)
    agent.ranks[job_id, moved_on_to, 0] = living
    async with cluster.services.write() as session:
        await (await session.connection()).run_sync(fence_generations, cluster.now())
    await agent.connect()
    job = await cluster.until_job(job_id, "running", restarts=0)
    number = 2 + SKIPPED_GENERATIONS
    assert (job["generation"], list(agent.ranks), agent.started[1:]) == (number, [(job_id, number, 0)], [(job_id, number, 0)])
