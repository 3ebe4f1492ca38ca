"""A node is drained: its ranks are handed over, or save and wait for other slots. Simulated agents on the real protocol."""

from __future__ import annotations

import pytest

from tests.integration.conftest import Cluster
from tests.integration.test_elastic import elastic, kinds, nodes_of, placed, until_size


async def drain(cluster: Cluster, name: str) -> None:
    node = (await cluster.nodes())[name]
    await cluster.client.delete(f"/api/v1/cluster/nodes/{node['id']}")


async def test_a_node_that_drains_hands_its_rank_over_before_it_lets_go(cluster: Cluster) -> None:
    agents = await nodes_of(cluster, "abc")
    job_id = await cluster.submit(**elastic(2))
    await cluster.until_job(job_id, "running")
    await drain(cluster, "a")
    job = await until_size(cluster, job_id, 2, generation=2)
    assert placed(job) == ["b", "c"]
    assert (agents["b"].worlds(job_id)[0].rank, agents["b"].worlds(job_id)[0].node_rank) == (0, 0)
    await cluster.until(lambda: agents["a"].desired is not None and agents["a"].desired.leave, "the drained node may leave")
    assert "job.moved" in await kinds(cluster, job_id)


async def test_without_another_slot_a_draining_node_shrinks_the_job(cluster: Cluster) -> None:
    agents = await nodes_of(cluster, "ab")
    job_id = await cluster.submit(**elastic(2))
    await cluster.until_job(job_id, "running")
    await drain(cluster, "b")
    job = await until_size(cluster, job_id, 1)
    assert placed(job) == ["a"]
    await cluster.until(lambda: agents["b"].desired is not None and agents["b"].desired.leave, "the drained node may leave")
    job = await until_size(cluster, job_id, 1)
    assert (job["pending"]["code"], job["pending"]["missing"]) == ("no_room_to_grow", "1 more slot")
    assert "runs with 1 of 2 ranks" in job["pending"]["text"]


async def test_every_node_drains_at_once_and_one_rank_at_least_holds_on_to_the_state(cluster: Cluster) -> None:
    await nodes_of(cluster, "ab")
    job_id = await cluster.submit(**elastic(2))
    await cluster.until_job(job_id, "running")
    await drain(cluster, "a")
    await drain(cluster, "b")
    await nodes_of(cluster, "cd")
    job = await cluster.until_placed(job_id, ["c", "d"])
    assert all(each["at_boundary"] for each in job["generations"][1:])
    assert job["restarts"] == 0


async def test_a_job_whose_node_drains_keeps_its_turn(cluster: Cluster) -> None:
    """As it does where the node is lost: what was queued while it ran comes after it."""
    agents = await nodes_of(cluster, "ab")
    drained = await cluster.submit(**elastic(1, recovery="restart"))
    await cluster.until_job(drained, "running")
    other = await cluster.submit(**elastic(1, recovery="restart"))
    await cluster.until_job(other, "running")
    await cluster.elapse(60.0, *agents.values())
    later = await cluster.submit(**elastic(1, recovery="restart"))
    (name,) = placed(await cluster.job(drained))
    await drain(cluster, name)
    await cluster.until_job(drained, "queued")
    await cluster.ask("DELETE", other)
    await cluster.until_job(drained, "running")
    assert (await cluster.job(later))["state"] == "queued"


@pytest.mark.parametrize("recovery", ["restart", "close_up"])
async def test_a_job_that_no_other_slot_can_hold_saves_and_waits_while_its_node_drains(cluster: Cluster, recovery: str) -> None:
    a = await cluster.add_agent("a", slots=1)
    job_id = await cluster.submit(**elastic(1, recovery=recovery))
    await cluster.until_job(job_id, "running")
    await a.step(job_id, 7)
    await drain(cluster, "a")
    job = await cluster.until_job(job_id, "queued", restarts=0)
    assert [each["end_reason"] for each in job["generations"]] == ["preempted"]
    assert [each["step"] for each in await cluster.checkpoints(job_id)] == [7]
    await cluster.add_agent("b", slots=1)
    assert placed(await cluster.until_job(job_id, "running", generation=2)) == ["b"]
