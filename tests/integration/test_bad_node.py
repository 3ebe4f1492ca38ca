"""A node that can start no rank, since its disk is full or read-only: its heartbeats go on coming, and its slots are free."""

from __future__ import annotations

from paceline.api.services.scheduling.earlier_generations import LEFT_OUT
from tests.integration.conftest import Cluster

WAITS = {
    "code": "slots_taken",
    "text": "needs 1 node with 1 free slot; the largest available node is a (1 free slot); a could not start it a short time ago",
    "missing": "1 more node with 1 free slot",
    "nearest_fit": "the largest available node is a (1 free slot)",
    "next_step": "wait for a job to end, or add a node",
    "no_launch": None,
}


async def test_a_full_disk_on_one_node_ends_no_job_beside_a_free_one(cluster: Cluster) -> None:
    await cluster.add_agent("a", slots=1, starts_ranks=False)
    await cluster.add_agent("b", slots=1)
    job_id = await cluster.submit()
    await cluster.until_placed(job_id, ["b"])
    job = await cluster.job(job_id)
    assert (job["generation"], job["restarts"]) == (2, 1)


async def test_a_full_disk_on_one_node_does_not_eat_the_queue_while_the_others_are_busy(cluster: Cluster) -> None:
    """Each job is tried there once, and then waits for another slot."""
    b = await cluster.add_agent("b", slots=1)
    first = await cluster.submit()
    await cluster.until_placed(first, ["b"])
    await cluster.add_agent("a", slots=1, starts_ranks=False)
    queue = [await cluster.submit() for _ in range(2)]
    for job_id in queue:
        await cluster.until_job(job_id, "recovering", generation=1, pending=WAITS)
    await cluster.elapse(10, *cluster.agents)
    for job_id in queue:
        await cluster.until_job(job_id, "recovering", generation=1, restarts=1, pending=WAITS)
    await b.complete(first)
    await cluster.until_placed(queue[0], ["b"])
    await b.complete(queue[0])
    await cluster.until_placed(queue[1], ["b"])


async def test_a_job_is_tried_again_later_on_the_only_node_there_is(cluster: Cluster) -> None:
    only = await cluster.add_agent("a", slots=1, starts_ranks=False)
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "recovering", restarts=2)
    only.starts_ranks = True
    await cluster.until_placed(job_id, ["a"])


async def test_a_node_that_could_not_start_a_job_is_tried_again_after_a_while(cluster: Cluster) -> None:
    await cluster.add_agent("b", slots=1)
    first = await cluster.submit()
    await cluster.until_placed(first, ["b"])
    bad = await cluster.add_agent("a", slots=1, starts_ranks=False)
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "recovering", restarts=1)
    bad.starts_ranks = True
    cluster.ahead += LEFT_OUT
    await cluster.until_placed(job_id, ["a"])
