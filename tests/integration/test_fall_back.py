"""Falling back in place as the coordinator sees it: simulated agents on the real protocol."""

from __future__ import annotations

from typing import Any

from tests.integration.conftest import Cluster
from tests.simulated_agent import SimulatedAgent

Agents = dict[str, SimulatedAgent]


async def gang(cluster: Cluster, names: str, *, max_restarts: int = 3, **parallelism: Any) -> tuple[str, Agents, dict[str, Any]]:
    """One rank on each node, in their order, at step 25; step 20 is saved. Replacements are slow to start."""
    agents = {name: await cluster.add_agent(name, slots=1, parks_at_once=False) for name in names}
    min_nodes = parallelism.pop("min_nodes", None)
    job_id = await cluster.submit(
        resources={"nodes": len(names), "min_nodes": min_nodes},
        parallelism={"strategy": "fsdp", **parallelism},
        fault_tolerance={"max_restarts": max_restarts},
        training={"steps": 100, "global_batch_size": 12},
    )
    job = await cluster.until_job(job_id, "running")
    await agents[job["ranks"][0]["node_name"]].save_checkpoint(job_id, 20)
    for agent in agents.values():
        await agent.step(job_id, 25)
    return job_id, agents, job


def pids(job: dict[str, Any]) -> dict[str, int]:
    return {rank["node_name"]: rank["pid"] for rank in job["ranks"] if not rank["parked"]}


def warm(job: dict[str, Any]) -> list[str]:
    return [rank["node_name"] for rank in job["ranks"] if rank["parked"] and rank["state"] == "parked"]


def without(before: dict[str, int], *names: str) -> dict[str, int]:
    return {name: pid for name, pid in before.items() if name not in names}


async def incidents(cluster: Cluster, job_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await cluster.client.get(f"/api/v1/training/jobs/{job_id}/incidents")).json()
    return found


async def tell_of_recovery(cluster: Cluster, leader: SimulatedAgent, job_id: str, *, step: int, fell_back: bool) -> None:
    rank = next(rank for (job, number, place), rank in leader.ranks.items() if (job, number, place) == (job_id, 2, 0))
    if fell_back:
        await leader.tell(rank, "checkpoint_restored", {"directory": f"/checkpoints/{job_id}/step-{step}.g1", "step": step})
    moments = dict.fromkeys(("entered_at", "joined_at", "agreed_at", "first_step_at"), cluster.now().timestamp())
    await leader.tell(rank, "carried_on", {"step": step, "transfers": 0, "fell_back": fell_back, **moments})


async def test_the_survivors_go_back_to_the_newest_checkpoint_in_their_processes(cluster: Cluster) -> None:
    job_id, agents, before = await gang(cluster, "abc", min_nodes=2)
    await agents["b"].crash(job_id, 1, kind="signal")
    job = await cluster.until_job(job_id, "running", generation=2, restarts=1)
    assert pids(job) == without(pids(before), "b")
    assert [each["start_step"] for each in job["generations"]] == [0, 20]
    (world,) = agents["c"].worlds(job_id)
    assert (world.rank, world.world_size, world.process.rank, world.restore_required) == (1, 2, 2, True)
    assert world.restore_from == (f"/checkpoints/{job_id}/step-20.g1",)
    await tell_of_recovery(cluster, agents["a"], job_id, step=20, fell_back=True)
    (incident,) = await incidents(cluster, job_id)
    assert (incident["action"], incident["step"], incident["resumed_step"], incident["steps_lost"]) == ("fell_back", 25, 20, 5)
    assert incident["survivors"] == [0, 2]
    assert [phase["name"] for phase in incident["phases"]] == ["detect", "decide", "fence", "rebuild", "transfer", "first_step"]
    kinds = [event["type"] for event in await cluster.events(job_id)]
    assert ("job.fell_back" in kinds, "job.closed_up" in kinds) == (True, False)


async def test_the_ranks_know_better_whether_a_part_was_lost(cluster: Cluster) -> None:
    """They differed by a step, and not every part was there at the newer one."""
    job_id, agents, _ = await gang(cluster, "abcd", shard=2)
    await agents["d"].crash(job_id, 3, kind="signal")
    await cluster.until_job(job_id, "running", generation=2, restarts=0)
    assert [each["action"] for each in await incidents(cluster, job_id)] == ["closed_up"]
    await tell_of_recovery(cluster, agents["a"], job_id, step=20, fell_back=True)
    (incident,) = await incidents(cluster, job_id)
    assert (incident["action"], incident["steps_lost"]) == ("fell_back", 5)


async def test_a_job_of_fixed_size_waits_in_place_for_a_new_process_in_the_old_slot(cluster: Cluster) -> None:
    job_id, agents, before = await gang(cluster, "ab", max_restarts=1)
    await agents["a"].crash(job_id, 0, kind="signal")
    job = await cluster.until_job(job_id, "running", generation=2, restarts=1)
    assert without(pids(before), "a").items() <= pids(job).items()
    assert pids(job).keys() == {"a", "b"}
    ((old,), (new,)) = agents["b"].worlds(job_id), agents["a"].worlds(job_id)
    assert (old.rank, old.process.generation, old.process.rank) == (0, 1, 1)
    assert (new.rank, new.birth, new.world_size) == (1, None, 2)
    assert new.restore_from == old.restore_from == (f"/checkpoints/{job_id}/step-20.g1",)
    await agents["b"].crash(job_id, 0, kind="signal")
    failed = await cluster.until_job(job_id, "failed")
    assert failed["restarts"] == 1


async def test_where_the_slot_is_not_to_be_had_it_restarts_elsewhere(cluster: Cluster) -> None:
    job_id, agents, before = await gang(cluster, "ab")
    nodes = await cluster.nodes()
    assert (await cluster.client.put(f"/api/v1/cluster/nodes/{nodes['b']['id']}/cordon")).status_code == 200
    await agents["b"].crash(job_id, 1, kind="signal")
    await cluster.add_agent("c", slots=1)
    job = await cluster.until_job(job_id, "running", generation=2, restarts=1)
    assert pids(job).keys() == {"a", "c"}
    assert pids(job)["a"] != pids(before)["a"]
    assert [each["action"] for each in await incidents(cluster, job_id)] == ["restarted"]


async def test_a_lost_shard_group_goes_and_is_made_up_anew(cluster: Cluster) -> None:
    job_id, agents, before = await gang(cluster, "abcd", shard=2, max_restarts=0)
    await agents["b"].crash(job_id, 1, kind="signal")
    job = await cluster.until_job(job_id, "running", generation=2, restarts=0)
    assert pids(job) == without(pids(before), "a", "b")
    (waiting,) = agents["a"].worlds(job_id)
    assert (waiting.parked, waiting.process.rank) == (True, 0)
    await tell_of_recovery(cluster, agents["c"], job_id, step=25, fell_back=False)
    await agents["a"].warm_up(job_id)
    await cluster.until_seen(lambda: cluster.job(job_id), lambda job: warm(job) == ["a"])  # who is ready first has the first place
    await cluster.until(lambda: len(agents["b"].worlds(job_id)) == 1, "a rank is to be parked on b")
    await agents["b"].warm_up(job_id)
    whole = await cluster.until_placed(job_id, ["c", "d", "a", "b"])
    assert without(pids(before), "b").items() <= pids(whole).items()
    assert [each["action"] for each in await incidents(cluster, job_id)] == ["closed_up"]


async def test_a_newcomer_that_dies_on_its_way_to_a_model_in_parts_is_left_behind(cluster: Cluster) -> None:
    """It failed the job, which had lost nothing and had no restart left."""
    for name in "ab":
        await cluster.add_agent(name, slots=1, crosses_at_once=False)
    job_id = await cluster.submit(
        resources={"nodes": 3, "min_nodes": 2},
        parallelism={"strategy": "fsdp"},
        fault_tolerance={"max_restarts": 0},
        training={"steps": 100, "global_batch_size": 12},
    )
    await cluster.until_job(job_id, "running", actual_world_size=2)
    late = await cluster.add_agent("c", slots=1)
    await cluster.until_job(job_id, "resizing")
    await late.crash(job_id, 2, message="no such device")
    job = await cluster.until_job(job_id, "running", generation=3)
    assert (job["restarts"], sorted(pids(job))) == (0, ["a", "b"])


async def test_a_newcomer_that_dies_beside_another_is_left_behind_and_the_other_joins_later(cluster: Cluster) -> None:
    """It failed the job, whose members were to go on together with the other one."""
    for name in "ab":
        await cluster.add_agent(name, slots=1, crosses_at_once=False)
    job_id = await cluster.submit(
        resources={"nodes": 4, "min_nodes": 2},
        parallelism={"strategy": "fsdp"},
        fault_tolerance={"max_restarts": 0},
        training={"steps": 100, "global_batch_size": 12},
    )
    await cluster.until_job(job_id, "running", actual_world_size=2)
    late = {name: await cluster.add_agent(name, slots=1, parks_at_once=False, reports_joined=False) for name in "cd"}
    for agent in late.values():
        await cluster.until(lambda agent=agent: len(agent.worlds(job_id)) == 1, "a rank is to be parked")
    for agent in late.values():
        await agent.warm_up(job_id)
    await cluster.until_job(job_id, "resizing")
    (dying,) = late["c"].worlds(job_id)[-1:]
    await late["c"].crash(job_id, dying.rank, message="no such device")
    job = await cluster.until_job(job_id, "running", generation=3)
    assert (job["restarts"], sorted(pids(job))) == (0, ["a", "b"])
    (waiting,) = late["d"].worlds(job_id)[-1:]
    assert waiting.parked
