"""Closing up as the coordinator sees it: simulated agents on the real protocol."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from paceline.cluster.policy.recovery import BROKEN_SECONDS, STEPLESS_GENERATIONS
from paceline.cluster.policy.views import RECONNECT_SECONDS
from paceline.training.link import FailureReport
from tests.integration.conftest import Cluster
from tests.simulated_agent import SimulatedAgent
from tests.simulated_rank import SimulatedRank

CLOSE_UP = {"resources": {"nodes": 3}, "parallelism": {"strategy": "ddp"}, "fault_tolerance": {"recovery": "close_up", "max_restarts": 0}}


def members(job: dict[str, Any]) -> list[dict[str, Any]]:
    return [rank for rank in job["ranks"] if not rank["parked"]]


async def gang_of_three(cluster: Cluster) -> tuple[str, dict[str, SimulatedAgent], dict[str, Any]]:
    """Whose replacements are slow to start: what is told of here is over before they are of use."""
    agents = {name: await cluster.add_agent(name, slots=1, parks_at_once=False) for name in "abc"}
    job_id = await cluster.submit(**CLOSE_UP, training={"steps": 100, "global_batch_size": 12})
    return job_id, agents, await cluster.until_job(job_id, "running")


async def test_survivors_become_the_next_generation_in_the_same_processes(cluster: Cluster) -> None:
    job_id, agents, before = await gang_of_three(cluster)
    for agent in agents.values():
        await agent.step(job_id, 7)
    await agents["b"].crash(job_id, 1, message="CUDA error")
    job = await cluster.until_job(job_id, "running", generation=2, restarts=0)
    pids = {rank["node_name"]: rank["pid"] for rank in before["ranks"]}
    assert [(rank["rank"], rank["node_name"], rank["pid"]) for rank in members(job)] == [(0, "a", pids["a"]), (1, "c", pids["c"])]
    assert [generation["world_size"] for generation in job["generations"]] == [3, 2]
    (world,) = agents["c"].worlds(job_id)
    assert (world.generation, world.rank, world.node_rank, world.world_size, world.process.rank) == (2, 1, 1, 2, 2)
    assert world.store_token != ""
    slots = {name: [slot["job_id"] for slot in node["slots"]] for name, node in (await cluster.nodes()).items()}
    assert slots == {"a": [job_id], "b": [job_id], "c": [job_id]}  # b's is free again, and a replacement starts in it
    (event,) = [event for event in await cluster.events(job_id) if event["type"] == "job.closed_up"]
    assert "CUDA error" in event["cause"]


async def test_a_job_that_ended_with_fewer_ranks_than_it_began_with_is_listed_with_those_that_were_left(cluster: Cluster) -> None:
    job_id, agents, _ = await gang_of_three(cluster)
    for generation, name in ((2, "a"), (3, "b")):
        await agents[name].crash(job_id, 0, kind="signal")
        running = await cluster.until_job(job_id, "running", generation=generation)
    assert running["world_size"] == 3, "those that it should have, and may get back"
    await agents["c"].complete(job_id)
    ended = await cluster.until_job(job_id, "completed")
    (listed,) = (await cluster.client.get("/api/v1/training/jobs")).json()["items"]
    assert (listed["world_size"], listed["last_world_size"], ended["last_world_size"]) == (3, 1, 1)
    assert running["last_world_size"] is None


async def checkpoints(cluster: Cluster, job_id: str) -> list[tuple[int, int, str]]:
    return [(item["step"], item["generation"], item["state"]) for item in await cluster.checkpoints(job_id)]


def rank_in(agent: SimulatedAgent, job_id: str, generation: int) -> SimulatedRank:
    (rank,) = [rank for (job, number, _), rank in agent.ranks.items() if (job, number) == (job_id, generation)]
    return rank


def saved(job_id: str, **known: Any) -> dict[str, Any]:
    return {"directory": f"/checkpoints/{job_id}/step-5.g1", "step": 5, "bytes": 1000, "manifest_sha256": "0" * 64} | known


async def test_what_was_saved_just_before_a_fault_and_told_after_it_stands(cluster: Cluster) -> None:
    job_id, agents, _ = await gang_of_three(cluster)
    leader = rank_in(agents["a"], job_id, 1)
    await agents["b"].crash(job_id, 1, kind="signal")
    await cluster.until_job(job_id, "running", generation=2)
    await agents["a"].tell(leader, "checkpoint_committed", saved(job_id))
    assert await checkpoints(cluster, job_id) == [(5, 1, "committed")]
    await agents["a"].tell(rank_in(agents["a"], job_id, 2), "checkpoint_committed", saved(job_id, generation=1))
    assert await checkpoints(cluster, job_id) == [(5, 1, "committed")]  # told twice


async def test_what_a_dead_leader_could_not_tell_is_told_by_its_successor(cluster: Cluster) -> None:
    job_id, agents, _ = await gang_of_three(cluster)
    await agents["a"].crash(job_id, 0, kind="signal")
    await cluster.until_job(job_id, "running", generation=2)
    await agents["b"].tell(rank_in(agents["b"], job_id, 2), "checkpoint_committed", saved(job_id, generation=1))
    assert await checkpoints(cluster, job_id) == [(5, 1, "committed")]


async def test_a_second_fault_and_the_birth_stays(cluster: Cluster) -> None:
    job_id, agents, _ = await gang_of_three(cluster)
    await agents["a"].crash(job_id, 0, kind="signal")
    await cluster.until_job(job_id, "running", generation=2)
    await agents["b"].crash(job_id, 0, kind="signal")
    await cluster.until_job(job_id, "running", generation=3, restarts=0)
    (world,) = agents["c"].worlds(job_id)
    assert (world.rank, world.world_size, world.process.generation, world.process.rank) == (0, 1, 1, 2)
    await agents["c"].complete(job_id)
    await cluster.until_job(job_id, "completed")
    await cluster.until(lambda: not any(agent.ranks for agent in agents.values()), "nothing is left on any node")


async def test_a_lost_agent_alone_is_no_fault_but_with_a_peers_word_it_is(cluster: Cluster) -> None:
    job_id, agents, _ = await gang_of_three(cluster)
    await agents["b"].disconnect()
    for _ in range(3):
        await cluster.step()
    assert (await cluster.job(job_id))["generation"] == 1
    await agents["a"].lose_peer(job_id)
    job = await cluster.until_job(job_id, "running", generation=2)
    assert [rank["node_name"] for rank in members(job)] == ["a", "c"]


async def test_agents_of_a_restarted_coordinator_are_not_taken_for_dead(cluster: Cluster) -> None:
    """In the middle of a recovery: the first to connect again must not be the only survivor."""
    job_id, agents, _ = await gang_of_three(cluster)
    for agent in agents.values():
        await agent.disconnect(code=1012)
    await agents["a"].connect()
    await agents["a"].lose_peer(job_id)
    for _ in range(3):
        await cluster.step()
    assert (await cluster.job(job_id))["generation"] == 1
    for name in "bc":
        await agents[name].connect()
    await agents["b"].crash(job_id, 1, kind="signal")
    job = await cluster.until_job(job_id, "running", generation=2)
    assert [rank["node_name"] for rank in members(job)] == ["a", "c"]


async def test_an_agent_that_connects_before_the_first_look_of_its_new_coordinator_keeps_its_rank(cluster: Cluster) -> None:
    """Only heartbeats of later than that look count as signs of life. Its report of a broken connection came later too, and made it an agent
    that was back and had gone again: its healthy rank was stopped, and started again."""
    job_id, agents, _ = await gang_of_three(cluster)
    for agent in agents.values():
        await agent.disconnect(code=1012)
    agents["c"].desired = None
    await agents["c"].connect()
    await cluster.until(lambda: agents["c"].desired is not None, "agent c is welcomed")
    cluster.ahead += timedelta(seconds=6)
    cluster.services.uptime.note(cluster.now())
    await agents["c"].lose_peer(job_id)
    for name in "ab":
        await agents[name].connect()
    await agents["b"].crash(job_id, 1, kind="signal")
    for _ in range(3):
        await cluster.step()
    assert (await cluster.job(job_id))["generation"] == 1
    job = await cluster.until_job(job_id, "running", generation=2)
    assert [rank["node_name"] for rank in members(job)] == ["a", "c"]


async def test_a_node_that_died_with_the_coordinator_gets_no_place_in_the_next_generation(cluster: Cluster) -> None:
    """Its connection stayed in the database, so every rank was taken to be alive, and the next generation waited for a dead one."""
    job_id, agents, _ = await gang_of_three(cluster)
    for agent in agents.values():
        await agent.disconnect(code=1012)
    cluster.ahead += timedelta(seconds=5)
    cluster.services.uptime.note(cluster.now())
    for name in "ac":
        await agents[name].connect()
        await agents[name].lose_peer(job_id)
    await cluster.elapse(5 + RECONNECT_SECONDS + 1, agents["a"], agents["c"])
    job = await cluster.until_job(job_id, "running", generation=2)
    assert [rank["node_name"] for rank in members(job)] == ["a", "c"]
    (incident,) = (await cluster.client.get(f"/api/v1/training/jobs/{job_id}/incidents")).json()
    assert incident["culprit"]["node_name"] == "b"


async def test_too_few_survivors_fall_back_to_the_checkpoint(cluster: Cluster) -> None:
    a, b = await cluster.add_agent("a", slots=1), await cluster.add_agent("b", slots=1)
    job_id = await cluster.submit(
        **CLOSE_UP | {"resources": {"nodes": 2, "min_nodes": 2}, "fault_tolerance": {"recovery": "close_up", "max_restarts": 1}}
    )
    await cluster.until_job(job_id, "running")
    folder = await a.save_checkpoint(job_id, 5)
    await b.crash(job_id, 1, kind="signal")
    await cluster.until_job(job_id, "running", generation=2, restarts=1)
    assert a.worlds(job_id)[0].restore_from == (folder,)
    assert a.worlds(job_id)[0].birth is None


async def test_every_fault_is_in_the_incident_log(cluster: Cluster) -> None:
    job_id, agents, _ = await gang_of_three(cluster)
    for agent in agents.values():
        await agent.step(job_id, 7)
    await agents["b"].crash(job_id, 1, message="CUDA error")
    await cluster.until_job(job_id, "running", generation=2)
    start = cluster.now().timestamp()
    moments = {"entered_at": start + 0.1, "joined_at": start + 0.2, "agreed_at": start + 0.3, "first_step_at": start + 0.4}
    leader = next(rank for (_, generation, _), rank in agents["a"].ranks.items() if generation == 2)
    await agents["a"].tell(leader, "carried_on", {"step": 8, "transfers": 1, **moments})
    (incident,) = (await cluster.client.get(f"/api/v1/training/jobs/{job_id}/incidents")).json()
    assert (incident["generation"], incident["next_generation"], incident["action"]) == (1, 2, "closed_up")
    assert (incident["culprit"]["node_name"], incident["culprit"]["message"]) == ("b", "CUDA error")
    assert (incident["step"], incident["resumed_step"], incident["steps_lost"]) == (7, 8, 0)
    assert [phase["name"] for phase in incident["phases"]] == ["detect", "decide", "fence", "rebuild", "transfer", "first_step"]
    assert sum(phase["seconds"] for phase in incident["phases"]) == pytest.approx(incident["outage_seconds"])
    assert (await cluster.job(job_id))["generations"][1]["start_step"] == 8


async def test_a_restart_is_in_the_incident_log_with_the_steps_it_cost(cluster: Cluster) -> None:
    a = await cluster.add_agent("a", slots=1)
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    await a.save_checkpoint(job_id, 5)
    await a.step(job_id, 9)
    await a.crash(job_id, 0)
    await cluster.until_job(job_id, "running", generation=2)
    (incident,) = (await cluster.client.get(f"/api/v1/training/jobs/{job_id}/incidents")).json()
    assert (incident["action"], incident["next_generation"], incident["steps_lost"]) == ("restarted", 2, 4)


async def test_three_quick_deaths_do_not_stop_the_scheduler(cluster: Cluster) -> None:
    """The third rank dies before it knows that it is the second of two by now, and reports under its old number."""
    job_id, agents, _ = await gang_of_three(cluster)
    other = await cluster.submit()
    for name in "abc":
        agents[name].crosses_at_once = False  # a dead process takes no new place, and its report keeps its old number
    await agents["b"].crash(job_id, 1, kind="signal")
    await cluster.until_seen(lambda: cluster.job(job_id), lambda job: job["generation"] == 2)
    for name, number in (("c", 2), ("a", 0)):
        for rank in agents[name].ranks.values():
            if rank.world.job_id == job_id:
                rank.failure = FailureReport(kind="signal", rank=number, message="killed by SIGKILL", time=3.0 + number)
                SimulatedAgent._exit(rank, "failed", signal="SIGKILL")
        await agents[name].observe()
    job = await cluster.until_job(job_id, "failed")
    assert job["failure"]["rank"] in (0, 1)
    await cluster.until_job(other, "running")


async def test_a_fault_that_comes_again_in_every_generation_ends_the_job_and_is_told(cluster: Cluster) -> None:
    """Ranks that lost a connection at the same place each time closed up without end; no restart was counted, and no error was told."""
    agents = [await cluster.add_agent(name, slots=1) for name in "ab"]
    job_id = await cluster.submit(**CLOSE_UP | {"resources": {"nodes": 2}, "fault_tolerance": {"recovery": "close_up", "max_restarts": 1}})
    for generation in range(1, STEPLESS_GENERATIONS + 2):
        await cluster.until_job(job_id, "running", generation=generation, restarts=int(generation > STEPLESS_GENERATIONS))
        for agent in agents:
            await agent.lose_peer(job_id)
        await cluster.elapse(generation * (BROKEN_SECONDS + 1), *agents)
    job = await cluster.until_job(job_id, "failed", restarts=1)
    assert job["generation"] == STEPLESS_GENERATIONS + 1
    assert (job["failure"]["kind"], job["failure"]["message"]) == ("peer_lost", "Connection closed by peer")
    last = (await cluster.client.get(f"/api/v1/training/jobs/{job_id}/incidents")).json()[-1]
    assert "Connection closed by peer; restart limit reached (1 of 1)" in last["why"]


async def test_a_step_between_two_faults_makes_closing_up_free_again(cluster: Cluster) -> None:
    agents = [await cluster.add_agent(name, slots=1) for name in "ab"]
    job_id = await cluster.submit(**CLOSE_UP | {"resources": {"nodes": 2}, "training": {"steps": 100, "global_batch_size": 12}})
    for generation in range(1, STEPLESS_GENERATIONS + 3):
        await cluster.until_job(job_id, "running", generation=generation, restarts=0)
        for agent in agents:
            await agent.step(job_id, generation // 2)
        for agent in agents:
            await agent.lose_peer(job_id)
        await cluster.elapse(generation * (BROKEN_SECONDS + 1), *agents)
    await cluster.until_job(job_id, "running", generation=STEPLESS_GENERATIONS + 3, restarts=0)
