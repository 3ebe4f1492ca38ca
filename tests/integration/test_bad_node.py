"""A node that can start no rank, or where ranks hang while they start: its heartbeats go on coming, and its slots are free."""

from __future__ import annotations

from datetime import timedelta

from paceline.api.services.scheduling.earlier_generations import LEFT_OUT
from paceline.cluster.policy.decide import START_SECONDS
from paceline.cluster.policy.gang_scaling import WARM_UP_SECONDS
from tests.integration.conftest import Cluster
from tests.integration.test_draining import drain
from tests.integration.test_elastic import elastic, nodes_of, parked

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


async def test_a_drain_does_not_wait_for_ever_for_a_rank_that_hangs_while_it_starts(cluster: Cluster) -> None:
    """A mount hangs there: the rank cannot even be ended, and keeps its slot."""
    b = (await nodes_of(cluster, "ab"))["b"]
    job_id = await cluster.submit(**elastic(2, min_nodes=1))
    await cluster.until_placed(job_id, ["a", "b"])
    await cluster.add_agent("c", slots=1, parks_at_once=False, obeys_stop=False)
    await drain(cluster, "b")
    await cluster.until_seen(lambda: cluster.job(job_id), lambda job: parked(job) == [("c", "starting")])
    cluster.ahead += timedelta(seconds=START_SECONDS + WARM_UP_SECONDS)
    await cluster.until_placed(job_id, ["a"])
    await cluster.until(lambda: b.desired is not None and b.desired.leave, "the drained node may leave")
    causes = [event["cause"] for event in await cluster.events(job_id) if event["type"] == "job.let_go"]
    assert causes == ["it did not get ready within 720 s"]


async def test_a_rank_that_did_not_get_ready_counts_as_failed_once_it_has_ended(cluster: Cluster) -> None:
    await nodes_of(cluster, "a")
    job_id = await cluster.submit(**elastic(2, min_nodes=1))
    await cluster.until_placed(job_id, ["a"])
    await cluster.add_agent("c", slots=1, parks_at_once=False)
    await cluster.until_seen(lambda: cluster.job(job_id), lambda job: parked(job) == [("c", "starting")])
    cluster.ahead += timedelta(seconds=START_SECONDS + WARM_UP_SECONDS)
    # until then it may say that there is no room to grow, as before the second node came
    waits = await cluster.until_seen(
        lambda: cluster.job(job_id), lambda job: bool(job["pending"]) and job["pending"]["code"] == "cannot_join"
    )
    assert waits["pending"]["text"].endswith("the last one because: it did not get ready within 720 s")
    await cluster.until_seen(lambda: cluster.job(job_id), lambda job: parked(job) == [("c", "exited"), ("c", "starting")])
