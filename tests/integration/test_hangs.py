"""Hangs as the coordinator sees them: simulated agents on the real protocol."""

from __future__ import annotations

import asyncio
from typing import Any

from paceline.db.repositories import jobs
from paceline.training.link import GroupCall, Stalled
from tests.integration.conftest import POLL_SECONDS, UNTIL_SECONDS, Cluster
from tests.integration.test_close_up import gang_of_three, members


def stalled(seconds: float = 0.7, **known: Any) -> Stalled:
    call = GroupCall(57, "sum of float64[8]")
    fields: dict[str, Any] = {
        "step": 8,
        "phase": "exchange",
        "limit": 0.6,
        "patience": 31.0,
        "since": 1.0,
        "waits": call,
        "recent": (call,),
    }
    return Stalled(seconds=seconds, **fields | known)


async def until_known(cluster: Cluster, job_id: str, *, waiting: int = 0, suspended: int = 0) -> None:
    """Agents speak on channels of their own: what one says may overtake another's word."""
    async with asyncio.timeout(UNTIL_SECONDS):
        while True:
            async with cluster.services.control.read() as session:
                ranks = (await jobs.ranks(session, [(job_id, 1)]))[job_id, 1]
            if (sum(rank.stall is not None for rank in ranks), sum(rank.suspended for rank in ranks)) == (waiting, suspended):
                return
            await asyncio.sleep(POLL_SECONDS)


async def stands_still(cluster: Cluster, job_id: str) -> bool:
    for _ in range(3):
        await cluster.step()
    return bool((await cluster.job(job_id))["generation"] == 1)


async def test_a_stopped_rank_is_no_fault_until_others_wait_for_it(cluster: Cluster) -> None:
    job_id, agents, _ = await gang_of_three(cluster)
    await agents["b"].suspend(job_id)
    await until_known(cluster, job_id, suspended=1)
    assert await stands_still(cluster, job_id)
    await agents["b"].suspend(job_id, suspended=False)
    await until_known(cluster, job_id)
    await agents["a"].stall(job_id, stalled())
    await until_known(cluster, job_id, waiting=1)
    assert await stands_still(cluster, job_id)
    await agents["a"].stall(job_id, None)
    await until_known(cluster, job_id)
    await agents["b"].suspend(job_id)
    await until_known(cluster, job_id, suspended=1)
    assert await stands_still(cluster, job_id)
    await agents["c"].stall(job_id, stalled())
    job = await cluster.until_job(job_id, "running", generation=2, restarts=0)
    assert [rank["node_name"] for rank in members(job)] == ["a", "c"]
    await cluster.until(lambda: agents["b"].action(job_id, 1) in ("stop", None), "the stopped rank is told to go")
    await cluster.until(lambda: agents["b"].action(job_id, 2) == "run", "a replacement starts in its slot")


async def test_the_incident_log_names_the_culprit_and_the_call_it_missed(cluster: Cluster) -> None:
    job_id, agents, _ = await gang_of_three(cluster)
    started = cluster.now().timestamp()
    await agents["b"].suspend(job_id)
    await agents["a"].stall(job_id, stalled(since=started - 0.7))
    await cluster.until_job(job_id, "running", generation=2)
    (incident,) = (await cluster.client.get(f"/api/v1/training/jobs/{job_id}/incidents")).json()
    assert (incident["cause"], incident["action"]) == ("hang", "closed_up")
    assert (incident["culprit"]["kind"], incident["culprit"]["rank"], incident["culprit"]["node_name"]) == ("hang", 1, "b")
    assert "rank 1 is stopped by a signal" in incident["why"]
    assert "call 57 (sum of float64[8]) of step 8" in incident["why"]


async def test_a_rank_on_a_machine_that_does_not_answer_is_left_behind(cluster: Cluster) -> None:
    job_id, agents, _ = await gang_of_three(cluster)
    await agents["a"].stall(job_id, stalled(unanswered=(2,)))
    job = await cluster.until_job(job_id, "running", generation=2, restarts=0)
    assert [rank["node_name"] for rank in members(job)] == ["a", "b"]


async def test_a_silent_break_loses_no_rank(cluster: Cluster) -> None:
    job_id, agents, before = await gang_of_three(cluster)
    for seconds in (0.7, 40.0):
        for agent in agents.values():
            await agent.stall(job_id, stalled(seconds))
        await until_known(cluster, job_id, waiting=3)
    job = await cluster.until_job(job_id, "running", generation=2, restarts=0)
    assert [rank["pid"] for rank in job["ranks"]] == [rank["pid"] for rank in before["ranks"]]
