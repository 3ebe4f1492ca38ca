"""The life of jobs from submit to end, told by simulated agents on the real protocol."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api.main import create_app
from api.settings import Settings
from tests.asgi_socket import AsgiSocket, SocketClosedError
from tests.integration.conftest import Cluster
from tests.simulated_agent import SimulatedAgent

RESTART = {"parallelism": {"strategy": "ddp"}, "fault_tolerance": {"recovery": "restart"}}
TWO_NODES = {"resources": {"nodes": 2}, **RESTART}
TWO_SLOTS = {"resources": {"slots_per_node": 2}, **RESTART}


async def _elapse(cluster: Cluster, seconds: float, *alive: SimulatedAgent) -> None:
    """Let the nodes watch live through this much time without a stall, while only `alive` are heard."""
    while cluster.ahead < timedelta(seconds=seconds):
        cluster.ahead += timedelta(seconds=1)
        await cluster.hear(*alive)
        await cluster.step()


async def _settled(cluster: Cluster, job_id: str) -> list[dict[str, Any]]:
    """The job's checkpoints once nothing is being deleted any more."""
    await cluster.step()
    await cluster.until_checkpoints(job_id, lambda found: all(each["state"] != "deleting" for each in found))
    return await cluster.checkpoints(job_id)


def _on(app: FastAPI, cluster: Cluster) -> Cluster:
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1:8000", headers=cluster.client.headers)
    return Cluster(app, client)


async def test_a_job_runs_to_its_end(cluster: Cluster) -> None:
    a, b = await cluster.add_agent("a"), await cluster.add_agent("b")
    job_id = await cluster.submit(**TWO_NODES)
    job = await cluster.until_job(job_id, "running", generation=1)
    assert [(rank["node_name"], rank["state"]) for rank in job["ranks"]] == [("a", "running"), ("b", "running")]
    (world_a,), (world_b,) = a.worlds(job_id), b.worlds(job_id)
    assert (world_a.rank, world_b.rank, world_a.world_size) == (0, 1, 2)
    assert (world_a.store_token, world_a.store_host, world_a.store_port) == (world_b.store_token, "10.0.0.1", 29500)
    await a.step(job_id, 3)
    await a.complete(job_id)
    await b.complete(job_id)
    job = await cluster.until_job(job_id, "completed", end_reason="completed")
    assert job["ended_at"]
    assert job["generations"][0]["first_step_at"]
    assert [event["type"] for event in await cluster.events(job_id)][:2] == ["job.submitted", "job.placed"]
    await cluster.until(lambda: not a.ranks and not b.ranks, "the agents have forgotten the ranks")


async def test_a_job_that_does_not_fit_says_why_and_starts_when_it_does(cluster: Cluster) -> None:
    await cluster.add_agent("a")
    job_id = await cluster.submit(**TWO_NODES)
    await cluster.step()
    pending = (await cluster.job(job_id))["pending"]
    assert pending["code"] == "cluster_too_small"
    assert pending["text"].startswith("needs 2 nodes with 1 slot each; the cluster has 1")
    await cluster.add_agent("b")
    job = await cluster.until_job(job_id, "running")
    assert job["pending"] is None


async def test_a_crash_restarts_from_the_newest_checkpoint_and_names_the_culprit(cluster: Cluster) -> None:
    a, b = await cluster.add_agent("a"), await cluster.add_agent("b")
    job_id = await cluster.submit(**TWO_NODES)
    await cluster.until_job(job_id, "running")
    await a.step(job_id, 20)
    folders = [await a.save_checkpoint(job_id, step) for step in (10, 20)]
    await a.crash(job_id, 0, kind="peer_lost", message="rank 1 is gone")
    await b.crash(job_id, 1, message="CUDA error")
    job = await cluster.until_job(job_id, "running", generation=2, restarts=1)
    assert a.worlds(job_id)[0].restore_from == (folders[1], folders[0])
    assert a.worlds(job_id)[0].restore_required
    assert job["failure"] is None
    causes = [
        event["cause"] for event in await cluster.events(job_id) if event["type"] == "job.state" and event["data"]["to"] == "recovering"
    ]
    assert causes == ["rank 0: rank 1 is gone; restart 1 of at most 3"] or causes == ["rank 1: CUDA error; restart 1 of at most 3"]


async def test_restarts_end_and_the_failure_names_the_culprit_not_its_victims(cluster: Cluster) -> None:
    a, b = await cluster.add_agent("a"), await cluster.add_agent("b")
    job_id = await cluster.submit(**TWO_NODES | {"fault_tolerance": {"max_restarts": 1, "recovery": "restart"}})
    for generation in (1, 2):
        await cluster.until_job(job_id, "running", generation=generation)
        await a.crash(job_id, 0, kind="peer_lost", message="rank 1 is gone")
        await b.crash(job_id, 1, kind="out_of_memory", message="CUDA out of memory")
    job = await cluster.until_job(job_id, "failed", end_reason="out_of_memory")
    assert (job["failure"]["rank"], job["failure"]["node_name"], job["failure"]["message"]) == (1, "b", "CUDA out of memory")
    assert [victim["rank"] for victim in job["failure"]["victims"]] == [0]
    assert job["restarts"] == 1
    exits = [event for event in await cluster.events(job_id) if event["type"] == "rank.exited" and event["data"]["rank"] == 1]
    assert {(event["cause"], event["data"]["outcome"]) for event in exits} == {("CUDA out of memory", "failed")}


async def test_invalid_input_is_not_retried(cluster: Cluster) -> None:
    a = await cluster.add_agent("a")
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    await a.crash(job_id, 0, kind="invalid_input", message="no such file")
    job = await cluster.until_job(job_id, "failed", end_reason="invalid_input")
    assert job["generation"] == 1


async def test_pause_frees_the_slots_and_resume_continues_from_what_it_saved(cluster: Cluster) -> None:
    a = await cluster.add_agent("a")
    job_id = await cluster.submit(**TWO_SLOTS)
    await cluster.until_job(job_id, "running")
    await a.step(job_id, 17)
    assert (await cluster.ask("PUT", job_id, "/pause")).json()["desired"] == "pause"
    await cluster.until_job(job_id, "paused", end_reason="paused")
    node = (await cluster.nodes())["a"]
    assert [slot["job_id"] for slot in node["slots"]] == [None, None]
    (saved,) = await cluster.checkpoints(job_id)
    assert (saved["step"], saved["latest"]) == (17, True)
    assert (await cluster.ask("PUT", job_id, "/resume")).status_code == 200
    job = await cluster.until_job(job_id, "running", generation=2)
    assert a.worlds(job_id)[0].restore_from == (saved["directory"],)
    assert (job["restarts"], job["generations"][1]["start_step"]) == (0, 17)


async def test_a_job_that_completes_while_it_is_paused_is_completed(cluster: Cluster) -> None:
    a = await cluster.add_agent("a")
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    await cluster.ask("PUT", job_id, "/pause")
    await a.complete(job_id)
    await cluster.until_job(job_id, "completed")


async def test_a_crash_while_pausing_still_pauses(cluster: Cluster) -> None:
    a = await cluster.add_agent("a")
    job_id = await cluster.submit(**TWO_SLOTS)
    await cluster.until_job(job_id, "running")
    folder = await a.save_checkpoint(job_id, 10)
    await a.crash(job_id, 1)
    await cluster.ask("PUT", job_id, "/pause")
    await cluster.until_job(job_id, "paused", restarts=1)
    await cluster.ask("PUT", job_id, "/resume")
    await cluster.until_job(job_id, "running", generation=2)
    assert a.worlds(job_id)[0].restore_from == (folder,)


async def test_a_queued_job_pauses_and_cancels_at_once(cluster: Cluster) -> None:
    job_id = await cluster.submit()
    await cluster.ask("PUT", job_id, "/pause")
    await cluster.until_job(job_id, "paused")
    await cluster.ask("DELETE", job_id)
    await cluster.until_job(job_id, "cancelled", end_reason="cancelled")


async def test_cancel_stops_the_ranks(cluster: Cluster) -> None:
    a = await cluster.add_agent("a")
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    assert (await cluster.ask("DELETE", job_id)).status_code == 200
    job = await cluster.until_job(job_id, "cancelled")
    assert job["ranks"][0]["signal"] == "SIGTERM"
    assert job["failure"] is None
    (exited,) = [event for event in await cluster.events(job_id) if event["type"] == "rank.exited"]
    assert (exited["message"], exited["data"]["outcome"]) == ("rank 0 on a: stopped (SIGTERM)", "stopped"), "as asked is not a failure"
    await cluster.until(lambda: not a.ranks, "the rank is forgotten")


async def test_a_rank_that_will_not_die_keeps_its_slot_but_not_its_job(cluster: Cluster) -> None:
    a = await cluster.add_agent("a", slots=1)
    a.obeys_stop = False
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    await cluster.ask("DELETE", job_id)
    await cluster.until_job(job_id, "stopping")
    await _elapse(cluster, 61, a)
    await cluster.until_job(job_id, "cancelled")
    assert (await cluster.nodes())["a"]["slots"][0]["job_id"] == job_id


async def test_a_coordinator_that_is_killed_disturbs_nothing(cluster: Cluster, settings: Settings) -> None:
    a = await cluster.add_agent("a")
    job_id = await cluster.submit(**TWO_SLOTS)
    before = await cluster.until_job(job_id, "running")
    successor = create_app(settings, with_loops=False)
    async with successor.router.lifespan_context(successor):
        await a.lose_coordinator(successor)
        again = _on(successor, cluster)
        await again.step()
        await a.connect()
        await a.step(job_id, 9)
        await again.until(lambda: a.welcome is not None, "the agent is welcomed again")
        after = await again.until_job(job_id, "running", generation=1)
        assert [rank["pid"] for rank in after["ranks"]] == [rank["pid"] for rank in before["ranks"]]
        assert len(a.started) == 2
        await a.complete(job_id)
        await again.until_job(job_id, "completed")
        await a.disconnect()


async def test_a_node_that_falls_silent_is_unreachable_then_lost_and_its_job_moves(cluster: Cluster) -> None:
    a, b = await cluster.add_agent("a", slots=1), await cluster.add_agent("b", slots=1)
    job_id = await cluster.submit()
    job = await cluster.until_job(job_id, "running")
    silent, other = (a, b) if job["ranks"][0]["node_name"] == "a" else (b, a)
    silent_name, other_name = ("a", "b") if silent is a else ("b", "a")
    await _elapse(cluster, 11, other)
    assert (await cluster.nodes())[silent_name]["state"] == "unreachable"
    assert (await cluster.job(job_id))["state"] == "running"
    await _elapse(cluster, 46, other)
    job = await cluster.until_job(job_id, "running", generation=2)
    assert job["ranks"][0]["node_name"] == other_name
    assert (await cluster.nodes())[silent_name]["state"] == "lost"
    reasons = [
        event["data"]["reason"]
        for event in await cluster.events(job_id)
        if event["type"] == "job.state" and event["data"]["to"] == "recovering"
    ]
    assert reasons == ["node_lost"]


async def test_a_lost_node_that_comes_back_stops_what_it_still_runs(cluster: Cluster) -> None:
    a = await cluster.add_agent("a", slots=1)
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    await _elapse(cluster, 11)
    await _elapse(cluster, 46)
    await cluster.until_job(job_id, "recovering")
    assert (await cluster.job(job_id))["pending"]["code"] == "nodes_unavailable"
    cluster.ahead = timedelta()
    await a.heartbeat()
    job = await cluster.until_job(job_id, "running", generation=2)
    assert [place[1] for place in a.started] == [1, 2]
    assert (await cluster.nodes())["a"]["state"] == "ready"
    assert job["restarts"] == 1


async def test_after_its_own_stall_the_coordinator_blames_no_node(cluster: Cluster) -> None:
    await cluster.add_agent("a")
    await cluster.step()
    cluster.ahead = timedelta(hours=1)
    await cluster.step()
    assert (await cluster.nodes())["a"]["state"] == "ready"


async def test_a_rank_that_its_machine_forgot_has_failed(cluster: Cluster) -> None:
    a = await cluster.add_agent("a")
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    await a.forget_everything()
    await cluster.until_job(job_id, "running", generation=2, restarts=1)


async def test_what_a_fenced_off_generation_saves_is_debris(cluster: Cluster) -> None:
    a, b = await cluster.add_agent("a", slots=1), await cluster.add_agent("b", slots=1)
    a.obeys_stop = b.obeys_stop = False
    job_id = await cluster.submit()
    job = await cluster.until_job(job_id, "running")
    old, new = (a, b) if job["ranks"][0]["node_name"] == "a" else (b, a)
    await _elapse(cluster, 11, new)
    await _elapse(cluster, 46, new)
    await cluster.until_job(job_id, "running", generation=2)
    await old.save_checkpoint(job_id, 99)
    assert await _settled(cluster, job_id) == []
    types = [event["type"] for event in await cluster.events(job_id) if event["type"].startswith("checkpoint.")]
    assert types[0] == "checkpoint.deleting"
    assert new.worlds(job_id)[0].restore_from == ()


async def test_retention_deletes_on_the_node_that_wrote(cluster: Cluster) -> None:
    a = await cluster.add_agent("a")
    job_id = await cluster.submit(checkpoint={"keep_last": 2, "keep_best": 1})
    await cluster.until_job(job_id, "running")
    for step, loss in ((10, 0.1), (20, 0.9), (30, 0.8), (40, 0.7)):
        await a.save_checkpoint(job_id, step, loss=loss)
    steps = [each["step"] for each in await _settled(cluster, job_id)]
    assert steps == [40, 30, 10]


async def test_a_second_connection_supersedes_the_first(cluster: Cluster) -> None:
    first = await cluster.add_agent("a")
    second = SimulatedAgent(cluster.app, first.credential)
    cluster.agents.append(second)
    await second.connect()
    await cluster.until(lambda: first.closed_with is not None, "the first is told")
    assert first.refused is not None
    assert (first.refused.code, first.refused.final) == ("superseded", True)
    await cluster.until(lambda: second.desired is not None, "the second is heard")
    assert (await cluster.nodes())["a"]["state"] == "ready"


async def test_an_agent_of_another_protocol_is_refused_for_good(cluster: Cluster) -> None:
    known = await cluster.add_agent("a")
    stranger = SimulatedAgent(cluster.app, known.credential, protocol=99)
    cluster.agents.append(stranger)
    await stranger.connect()
    await cluster.until(lambda: stranger.closed_with is not None, "it is refused")
    assert stranger.refused is not None
    assert (stranger.refused.code, stranger.refused.final) == ("protocol_version", True)
    assert known.closed_with is None


async def test_no_credential_no_channel(cluster: Cluster) -> None:
    socket = AsgiSocket(cluster.app, "/api/v1/agents/channel", {"Authorization": "Bearer pn_wrong"})
    with pytest.raises(SocketClosedError) as closed:
        await socket.open()
    assert closed.value.code == 4401


async def test_an_unreadable_message_ends_the_channel(cluster: Cluster) -> None:
    agent = await cluster.add_agent("a")
    assert agent._socket is not None
    await agent._socket.send('{"type": "nonsense"}')
    await cluster.until(lambda: agent.closed_with is not None, "it is closed")
    assert agent.closed_with == 4400


async def test_draining_waits_for_a_script_then_lets_the_node_go(cluster: Cluster) -> None:
    a = await cluster.add_agent("a")
    job_id = await cluster.submit(model=None, data=None, training=None, script={"path": "train.py"})
    await cluster.until_job(job_id, "running")
    node_id = (await cluster.nodes())["a"]["id"]
    answer = await cluster.client.delete(f"/api/v1/cluster/nodes/{node_id}")
    assert (answer.status_code, answer.json()["state"], answer.json()["drain_blocked_by"]) == (202, "draining", [job_id])
    await cluster.step()
    assert (await cluster.nodes())["a"]["state"] == "draining"
    await a.complete(job_id)
    await cluster.until_job(job_id, "completed")
    await cluster.until(lambda: a.desired is not None and a.desired.leave, "the agent is told to leave")
    await a.disconnect()
    assert (await cluster.nodes())["a"]["state"] == "gone"


async def test_forced_removal_moves_the_job_at_once(cluster: Cluster) -> None:
    await cluster.add_agent("a", slots=1)
    await cluster.add_agent("b", slots=1)
    job_id = await cluster.submit()
    job = await cluster.until_job(job_id, "running")
    rank = job["ranks"][0]
    await cluster.client.delete(f"/api/v1/cluster/nodes/{rank['node_id']}", params={"force": "true"})
    job = await cluster.until_job(job_id, "running", generation=2)
    assert job["ranks"][0]["node_name"] != rank["node_name"]


async def test_a_restored_job_starts_from_the_checkpoint_of_another(cluster: Cluster) -> None:
    a = await cluster.add_agent("a")
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    folder = await a.save_checkpoint(job_id, 10)
    (checkpoint,) = await cluster.checkpoints(job_id)
    answer = await cluster.client.post(f"/api/v1/checkpoints/{checkpoint['id']}/restore", json={"steps": 200})
    assert answer.status_code == 201, answer.text
    restored = await cluster.until_job(answer.json()["id"], "running")
    assert (restored["name"], restored["restored_from"], restored["spec"]["training"]["steps"]) == (
        "digits-restored",
        checkpoint["id"],
        200,
    )
    assert a.worlds(restored["id"])[0].restore_from == (folder,)
    assert a.worlds(restored["id"])[0].restore_required
    refused = await cluster.client.delete(f"/api/v1/checkpoints/{checkpoint['id']}")
    assert (refused.status_code, refused.json()["code"]) == (409, "checkpoint_in_use")
    assert restored["id"] in refused.json()["detail"]


async def test_a_restore_from_a_damaged_checkpoint_falls_back_to_that_jobs_older_ones(cluster: Cluster) -> None:
    a = await cluster.add_agent("a")
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    folders = {step: await a.save_checkpoint(job_id, step) for step in (10, 20, 30)}
    chosen = next(each["id"] for each in await cluster.checkpoints(job_id) if each["step"] == 20)
    restored = (await cluster.client.post(f"/api/v1/checkpoints/{chosen}/restore", json={})).json()["id"]
    await cluster.until_job(restored, "running", generation=1)
    assert a.worlds(restored)[0].restore_from == (folders[20], folders[10])
    rank = next(rank for (job, _, _), rank in a.ranks.items() if job == restored)
    for step in (20, 10):
        await a.tell(rank, "checkpoint_damaged", {"directory": folders[step], "reason": "hash differs"})
    await a.crash(restored, 0)
    await cluster.until_job(restored, "running", generation=2)
    world = a.worlds(restored)[-1]
    assert (world.restore_from, world.restore_required) == ((), True)


async def test_a_heartbeat_shows_on_the_node(cluster: Cluster) -> None:
    a = await cluster.add_agent("a")
    await a.heartbeat()
    node: dict[str, Any] = await cluster.until_node("a", lambda node: node["host"] is not None)
    assert (node["host"]["cpu_percent"], node["backlog_records"], node["gpu_note"]) == (50.0, 7, "no GPU")
    assert abs(node["clock_skew_seconds"]) > 0
    status = (await cluster.client.get("/api/v1/cluster/gpu-status")).json()
    assert status == {"gpus": [], "nodes_without_gpu": ["a"]}
