"""A pool that grows with what waits and shrinks when it is idle: with a provider in this process, on both databases, the time as an argument."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from paceline.api.core.identity import SYSTEM
from paceline.api.loops.elasticity import Elasticity
from paceline.api.services.lifecycle import node_lifecycle
from paceline.api.services.nodes import scaling
from paceline.cluster.autoscaling.decisions import DrainNode
from paceline.cluster.provisioners.provisioner import LaunchPhase, ProvisionerError, SeenLaunch
from paceline.cluster.states import LaunchState, NodeState
from paceline.db.models.jobs import JobRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import provisioning, slots
from tests.api.loops.grown_pool import LAUNCHES, NODES, POOL, POOLS, Grown

FOUR_SLOTS = {"resources": {"slots": 4}, "parallelism": {"strategy": "ddp"}}
GROWS = {"resources": {"slots": 4, "min_slots": 1}, "parallelism": {"strategy": "ddp"}}


async def test_a_pool_grows_by_what_a_gang_needs_and_goes_when_nobody_uses_it(grown: Grown) -> None:
    await grown.apply()
    job = await grown.submit(**FOUR_SLOTS)
    await grown.step(5)
    assert await grown.coming() == [], "it may start in a moment"
    await grown.step(6)
    assert await grown.coming() == ["lab-gpu1", "lab-gpu2"]
    await grown.step()
    await grown.step()
    assert len(await grown.coming()) == 2, "what comes is counted"
    assert await grown.told() == [("launch.requested", f"job {job.id} waits for 4 slots")] * 2
    nodes = await grown.join_all()
    await grown.run_on(job, nodes)
    await grown.step(120)
    assert await grown.states() == ["ready", "ready"], "a busy node is never drained"
    await grown.end(job)
    await grown.step()
    await grown.step(59)
    assert await grown.states() == ["ready", "ready"]
    await grown.step(2)
    assert [type for type, _ in await grown.told()] == ["launch.requested"] * 2 + ["launch.unwanted", "node.state"] * 2
    assert {cause for type, cause in await grown.told() if type == "node.state"} == {"no job has used it for 61 s"}
    (pool,) = (await grown.client.get(POOLS)).json()["items"]
    assert (pool["nodes"], pool["coming"], pool["autoscale"]["idle_seconds"]) == (0, 0, 60)
    assert pool["node_hours"] == pytest.approx(2 * 180 / 3600, rel=0.2)


async def small_job(grown: Grown) -> JobRow:
    """A job that runs on the only node of its pool and wants more."""
    await grown.apply(min_nodes=1)
    await grown.step()
    await grown.step()
    nodes = await grown.join_all()
    job = await grown.submit(**GROWS)
    await grown.run_on(job, nodes)
    return job


async def test_a_job_that_runs_with_fewer_ranks_than_it_wants_makes_the_pool_grow_and_grows_onto_the_node(grown: Grown) -> None:
    """Only jobs that waited did: one that had lost a node, or was made larger, ran on with what it had."""
    job = await small_job(grown)
    elasticity = Elasticity(grown.services)
    await elasticity.step_once(grown.now)
    await grown.step(5)
    assert len(grown.provider.requests) == 1, "it may get slots in a moment"
    await grown.step(11)
    assert await grown.told() == [
        ("launch.requested", "it is to have at least 1 node"),
        ("launch.requested", f"job {job.id} runs with 2 of 4 ranks"),
    ]
    await grown.step(5)
    assert len(grown.provider.requests) == 2, "what comes is counted"
    (other,) = await grown.join_all()
    await elasticity.step_once(grown.now)
    async with grown.services.control.read() as session:
        places = [(holder.node_id, holder.slot) for holder in await slots.holders(session, other)]
    assert places == [(other, 0), (other, 1)], "the node that came for it is used by it"
    await grown.step(600)
    assert await grown.states() == ["ready", "ready"], "and is not idle"
    assert len(grown.provider.requests) == 2


async def test_a_node_that_a_running_job_does_not_use_is_drained_and_none_follows_at_once(grown: Grown) -> None:
    await small_job(grown)
    await Elasticity(grown.services).step_once(grown.now)
    await grown.step(2)
    await grown.step(11)
    await grown.step()
    await grown.join_all()  # nobody lets the job grow from here on
    for _ in range(30):
        await grown.step(10)
    drained = [cause for type, cause in await grown.told() if type == "node.state"]
    assert len(drained) == 1
    assert drained[0].startswith("no job has used it for")
    assert [type for type, _ in await grown.told()].count("launch.requested") == 2
    (held,) = (await grown.pool())["withheld"]
    assert held["reason"].startswith("there were nodes for it and it has not grown; tried again at")


async def test_no_node_is_launched_for_a_job_that_gets_the_slots_of_a_running_one_first(grown: Grown) -> None:
    """A job whose slots were free in half a minute got a node that took a minute."""
    await grown.apply()
    running = await grown.submit(resources={"slots": 2}, parallelism={"strategy": "ddp"})
    await grown.step(11)
    await grown.step()
    nodes = await grown.join_all()
    async with grown.services.write() as session:
        await session.execute(update(NodeRow).values(joined_at=grown.now + timedelta(seconds=60)))  # it has taken so long
    await grown.run_on(running, nodes)
    await grown.tell(running, eta_seconds=30.0)
    waiting = await grown.submit()
    await grown.step(11)
    await grown.step()
    assert len(grown.provider.requests) == 1
    (held,) = (await grown.pool())["withheld"]
    assert (held["job_id"], held["reason"].startswith("slots for it are expected by ")) == (waiting.id, True)
    assert f", when job {running.id} ends, and a new node of lab takes " in held["reason"]
    await grown.step(60)
    await grown.step()
    assert len(grown.provider.requests) == 2, "it has not ended: nothing is known any more"


async def test_nodes_that_take_long_to_be_ready_are_waited_for(grown: Grown) -> None:
    """An agent looks at its machine before it connects. Its node passed for idle meanwhile and was taken away, again and again."""
    await grown.apply()
    await grown.submit(**FOUR_SLOTS)
    await grown.step(11)
    await grown.step()
    await grown.join_all(ready=False)
    for _ in range(3):
        await grown.step(61)
    assert await grown.states() == ["joining", "joining"]
    assert [type for type, _ in await grown.told()] == ["launch.requested"] * 2, "what joins is counted: no third node is launched"


async def test_the_minimum_is_kept_and_pools_without_autoscale_are_left_alone(grown: Grown) -> None:
    plain = {name: value for name, value in POOL.items() if name != "autoscale"} | {"name": "by-hand", "min_nodes": 2}
    assert (await grown.client.put(f"{POOLS}/by-hand", json=plain)).status_code == 200
    await grown.submit(**FOUR_SLOTS)
    await grown.step(30)
    assert await grown.coming() == []
    await grown.apply(min_nodes=1, max_nodes=1)
    await grown.step()
    assert await grown.coming() == ["lab-gpu1"]
    await grown.join_all()
    await grown.step()
    await grown.step(600)
    assert await grown.states() == ["ready"]


async def test_a_full_pool_fills_the_place_of_a_node_that_left_by_itself_as_soon_as_its_provider_has_ended_it(grown: Grown) -> None:
    """It refused itself a node, since the place was still taken, and rested for five minutes."""
    await grown.apply(min_nodes=1, max_nodes=1)
    await grown.step()
    (node,) = await grown.join_all()
    grown.provider.seen["fake/lab-gpu1"] = SeenLaunch(LaunchPhase.ENDED, "preempted")
    async with grown.services.write() as session:
        left = await node_rows.get_locked(session, node)
        assert left is not None
        await node_lifecycle.move(session, left, NodeState.GONE, SYSTEM, "drained, and its agent has left", grown.now)
    await grown.step()
    await grown.step()
    assert [type for type, _ in await grown.told()] == ["launch.requested"] * 2


async def test_a_pool_whose_launches_come_to_nothing_rests(grown: Grown) -> None:
    await grown.apply()
    grown.provider.refusal = ProvisionerError("no such key")
    await grown.submit()
    for _ in range(30):
        await grown.step(30)
    tried = grown.provider.count("launch")
    assert 5 <= tried <= 15, "five tries of a launch, then five minutes of rest"
    failed = [each for each in (await grown.client.get(LAUNCHES)).json()["items"] if each["state"] == "failed"]
    assert failed
    assert failed[0]["failure"] == "no such key (5 tries)"


async def test_a_node_that_has_got_a_job_since_the_look_is_not_drained(grown: Grown) -> None:
    await grown.apply(min_nodes=1)
    await grown.step()
    (node,) = await grown.join_all()
    job = await grown.submit()
    await grown.run_on(job, [node])
    await scaling.carry_out(grown.services, [], [DrainNode(node, "lab", "it was idle")], grown.now)
    assert await grown.states() == ["ready"]


async def test_why_nothing_is_launched_stands_with_the_pool_and_with_the_job_as_long_as_it_is_so(grown: Grown) -> None:
    await grown.apply(max_nodes=1)
    job = await grown.submit(**FOUR_SLOTS)
    async with grown.services.write() as session:
        row = await session.get(JobRow, job.id)
        assert row is not None
        row.pending = {"code": "no_slots", "text": "needs 4 slots"}
    await grown.step(5)
    assert (await grown.pool())["withheld"] == [], "it may start in a moment"
    await grown.step(6)
    reason = "lab may have 1 node more, and it lacks 2"
    pool = await grown.pool()
    assert pool["withheld"] == [{"job_id": job.id, "job_name": job.name, "reason": reason}]
    assert pool["withheld_count"] == 1
    assert [cause for type, cause in await grown.told() if type == "autoscaler.withheld"] == [reason]
    for path in (f"/api/v1/training/jobs/{job.id}", "/api/v1/training/jobs"):
        answer = (await grown.client.get(path)).json()
        assert answer.get("items", [answer])[0]["pending"]["no_launch"] == reason
    await grown.apply(max_nodes=2)
    await grown.step()
    assert (await grown.pool())["withheld"] == []
    assert (await grown.client.get(f"/api/v1/training/jobs/{job.id}")).json()["pending"]["no_launch"] is None
    await grown.apply(max_nodes=1)
    big = await grown.submit(**FOUR_SLOTS)
    await grown.step(11)
    assert [each["job_id"] for each in (await grown.pool())["withheld"]] == [big.id]
    await grown.apply(autoscale=None)
    await grown.step()
    assert (await grown.pool())["withheld"] == [], "people say how many nodes it has"


async def test_node_hours_count_what_ran_whether_or_not_the_pool_scaled_itself(grown: Grown) -> None:
    await grown.apply(min_nodes=1)
    await grown.step()
    await grown.step()
    await grown.join_all()
    await grown.step(3600)
    await grown.apply(min_nodes=1, autoscale=None)
    (node,) = (await grown.client.get(NODES)).json()["items"]
    await grown.step(3600)
    assert (await grown.pool())["node_hours"] == pytest.approx(2, abs=0.1), "its nodes ran, and cost what they cost"
    await grown.step(60)
    async with grown.services.write() as session:
        launch = await provisioning.launch_of_node(session, node["id"])
        assert launch is not None
        launch.state, launch.ended_at = LaunchState.ENDED, grown.now
    before = (await grown.pool())["node_hours"]
    await grown.step(7200)
    await grown.apply(max_nodes=1, min_nodes=1)
    await grown.step(31)
    assert (await grown.pool())["node_hours"] == pytest.approx(before, abs=0.1), "hours without nodes are not charged by nodes of today"


async def test_node_hours_are_counted_on_after_the_clock_was_a_month_ahead(grown: Grown) -> None:
    """None was counted until that time had come again."""
    await grown.apply(min_nodes=1)
    await grown.step()
    await grown.step()
    await grown.join_all()
    await grown.step(3600)
    await grown.step(40 * 86400)
    await grown.step(-40 * 86400)
    await grown.step(3600)
    assert (await grown.pool())["node_hours"] == pytest.approx(2, abs=0.1)


async def test_an_idle_node_is_drained_though_its_job_ended_while_the_clock_was_a_day_ahead(grown: Grown) -> None:
    """It was kept, and paid for, until that time had come again."""
    await grown.apply()
    job = await grown.submit(**FOUR_SLOTS)
    await grown.step(11)
    await grown.step()
    await grown.run_on(job, await grown.join_all())
    await grown.step(86400)
    await grown.end(job)
    await grown.step()
    await grown.step(-86400)
    await grown.step(59)
    assert await grown.states() == ["ready", "ready"]
    await grown.step(2)
    assert "ready" not in await grown.states()


async def test_a_pool_rests_no_longer_than_ever_after_the_clock_was_a_day_ahead(grown: Grown) -> None:
    await grown.apply()
    grown.provider.refusal = ProvisionerError("no such key")
    await grown.submit()
    await grown.step(86400)
    while not any(each["state"] == "failed" for each in (await grown.client.get(LAUNCHES)).json()["items"]):
        await grown.step(30)
    await grown.step()
    tried, grown.provider.refusal = grown.provider.count("launch"), None
    await grown.step(-86400)
    await grown.step(2)
    assert grown.provider.count("launch") == tried + 1


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"slots": None}, "autoscale needs slots"),
        ({"provider": {"type": "manual"}, "max_nodes": 2}, "people start those of a manual pool"),
        ({"autoscale": {"idle_seconds": -1}}, "must be 0 or more; got -1"),
        ({"autoscale": {"idle": 3}}, "idle"),
    ],
)
async def test_what_cannot_be_scaled_is_refused_with_the_way_out(grown: Grown, changes: dict[str, Any], told: str) -> None:
    answer = await grown.client.put(f"{POOLS}/lab", json=POOL | changes)
    assert answer.status_code == 422
    assert told in answer.text
