"""Nodes whose machine will be taken away: their jobs move before, and a machine that comes back keeps its place."""

from __future__ import annotations

from tests.integration.conftest import Cluster


async def test_a_job_moves_to_another_node_before_its_own_is_taken_away(cluster: Cluster) -> None:
    a, b = await cluster.add_agent("a", slots=1), await cluster.add_agent("b", slots=1)
    job_id = await cluster.submit()
    first = (await cluster.until_job(job_id, "running"))["ranks"][0]["node_name"]
    ending, other = (a, "b") if first == "a" else (b, "a")
    await ending.notice(600)
    job = await cluster.until_placed(job_id, [other])
    assert job["restarts"] == 0  # a change that was wanted, and no fault
    await cluster.until(lambda: ending.desired is not None and ending.desired.leave, "the drained node is told to leave")
    await ending.disconnect()
    await cluster.until_node(first, lambda node: bool(node["state"] == "gone"))


async def test_a_job_without_another_slot_saves_and_waits(cluster: Cluster) -> None:
    a = await cluster.add_agent("a", slots=1)
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    await a.step(job_id, 7)
    await a.notice(60)
    await cluster.until_job(job_id, "queued")
    (checkpoint,) = await cluster.checkpoints(job_id)
    assert checkpoint["step"] == 7
    assert (await cluster.nodes())["a"]["state"] == "draining"


async def test_a_machine_that_comes_back_keeps_its_node(cluster: Cluster) -> None:
    a = await cluster.add_agent("a", slots=1)
    await a.notice(60, returns=True)
    await cluster.until(lambda: a.desired is not None and a.desired.leave, "the idle node is told to leave")
    await a.leave()
    await a.disconnect()
    await cluster.until_node("a", lambda node: bool(node["state"] == "unreachable"))
    await cluster.elapse(60)
    assert (await cluster.nodes())["a"]["state"] == "lost"
    a.boot_id = "boot-2"
    await a.connect()
    await cluster.until_node("a", lambda node: bool(node["state"] == "ready"))
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")


async def test_a_machine_that_comes_back_keeps_its_node_though_its_connection_broke_while_it_drained(cluster: Cluster) -> None:
    a, b = await cluster.add_agent("a", slots=1), await cluster.add_agent("b", slots=1)
    job_id = await cluster.submit(resources={"nodes": 2}, parallelism={"strategy": "ddp"})
    await cluster.until_job(job_id, "running")
    a.crosses_at_once = b.crosses_at_once = False  # its ranks stay for now
    await a.notice(600, returns=True)
    await cluster.until_node("a", lambda node: bool(node["state"] == "draining"))
    await a.disconnect()
    await a.connect()
    await a.notice(600, returns=True)  # it repeats it, since it does not know that it was heard
    await b.cross(job_id)
    await a.cross(job_id)
    await cluster.until(lambda: a.desired is not None and a.desired.leave, "it is told to leave")
    await a.disconnect()
    await cluster.until_node("a", lambda node: bool(node["state"] == "unreachable"))
    a.boot_id = "boot-2"
    await a.connect()
    await cluster.until_node("a", lambda node: bool(node["state"] == "ready"))


async def test_a_machine_that_goes_before_its_ranks_have_left_it_keeps_its_node(cluster: Cluster) -> None:
    """It was taken away early, or was cut off: the node was removed for good."""
    a, b = await cluster.add_agent("a", slots=1), await cluster.add_agent("b", slots=1)
    job_id = await cluster.submit(resources={"nodes": 2}, parallelism={"strategy": "ddp"})
    await cluster.until_job(job_id, "running")
    a.crosses_at_once = b.crosses_at_once = False  # its ranks stay for now
    await a.notice(600, returns=True)
    await cluster.until_node("a", lambda node: bool(node["state"] == "draining"))
    await a.disconnect()
    await cluster.elapse(60, b)
    assert (await cluster.nodes())["a"]["state"] == "lost"
    a.boot_id = "boot-2"
    await a.connect()
    await cluster.until_node("a", lambda node: bool(node["state"] == "ready"))
    await a.notice(600, returns=True)
    await cluster.until_node("a", lambda node: bool(node["state"] == "draining"))
    a.boot_id = "boot-3"
    await a.disconnect()
    await a.connect()
    await cluster.until_node("a", lambda node: bool(node["state"] == "ready"))


async def test_who_removes_a_node_with_a_notice_removes_it_for_good(cluster: Cluster) -> None:
    a, b = await cluster.add_agent("a", slots=1), await cluster.add_agent("b", slots=1)
    job_id = await cluster.submit(resources={"nodes": 2}, parallelism={"strategy": "ddp"})
    await cluster.until_job(job_id, "running")
    a.crosses_at_once = b.crosses_at_once = False  # its ranks stay for now
    await a.notice(600, returns=True)
    node = await cluster.until_node("a", lambda node: bool(node["state"] == "draining"))
    assert (await cluster.client.delete(f"/api/v1/cluster/nodes/{node['id']}", params={"force": "true"})).is_success
    await cluster.until(lambda: a.desired is not None and a.desired.leave, "it is told to leave")
    await a.disconnect()
    await cluster.until_node("a", lambda node: bool(node["state"] == "gone"))
