"""The life of jobs from submit to end, told by simulated agents on the real protocol."""

from __future__ import annotations

from datetime import timedelta

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import select

from paceline.api.main import create_app
from paceline.api.settings import Settings
from paceline.db.models.jobs import RankRow
from paceline.db.session import Database
from tests.integration.conftest import Cluster

RESTART = {"parallelism": {"strategy": "ddp"}, "fault_tolerance": {"recovery": "restart"}}
TWO_NODES = {"resources": {"nodes": 2, "spread": True}, **RESTART}
TWO_SLOTS = {"resources": {"slots_per_node": 2}, **RESTART}


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


async def test_a_job_that_has_ended_shows_its_last_step(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its progress is written now and then: whoever saw that a script had completed could see it some steps before its end."""
    monkeypatch.setattr("paceline.api.services.ingest.progress.MINIMUM_SECONDS_BETWEEN_WRITES", 60.0)
    agent = await cluster.add_agent("a")
    job_id = await cluster.submit(model=None, data=None, training=None, script={"path": "f.py"})
    await cluster.until_job(job_id, "running")
    await agent.record(job_id, 1, loss=2.0)
    await cluster.until_seen(lambda: cluster.job(job_id), lambda job: (job["progress"] or {}).get("step") == 1)
    await agent.record(job_id, 2, loss=1.0)
    await agent.complete(job_id)
    job = await cluster.until_job(job_id, "completed")
    assert (job["progress"]["step"], job["progress"]["loss"]) == (2, 1.0)


async def test_ranks_of_uneven_shares_are_told_their_places(cluster: Cluster) -> None:
    wide, narrow = await cluster.add_agent("wide", slots=3), await cluster.add_agent("narrow", slots=2)
    length = {"steps": 100, "global_batch_size": 40, "micro_batch_size": 2}
    job_id = await cluster.submit(resources={"slots": 5}, parallelism={"strategy": "ddp"}, training=length)
    await cluster.until_job(job_id, "running")
    found = [
        (place.rank, place.local_rank, place.local_world_size, place.node_rank, place.node_count, place.world_size)
        for place in (*wide.worlds(job_id), *narrow.worlds(job_id))
    ]
    assert found == [(0, 0, 3, 0, 2, 5), (1, 1, 3, 0, 2, 5), (2, 2, 3, 0, 2, 5), (3, 0, 2, 1, 2, 5), (4, 1, 2, 1, 2, 5)]


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
    assert causes == ["rank 0: rank 1 is gone; restart 1 of 3"] or causes == ["rank 1: CUDA error; restart 1 of 3"]


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


async def test_a_job_that_its_spec_pauses_stays_paused_until_it_is_resumed(cluster: Cluster) -> None:
    a = await cluster.add_agent("a")
    job_id = await cluster.submit(**TWO_SLOTS, training={"steps": 100, "pause_at_steps": [17]})
    await cluster.until_job(job_id, "running")
    await a.pause_itself(job_id, 17)
    job = await cluster.until_job(job_id, "paused", end_reason="paused")
    assert (job["desired"], job["restarts"]) == ("pause", 0)
    assert [slot["job_id"] for slot in (await cluster.nodes())["a"]["slots"]] == [None, None]
    causes = [event["cause"] for event in await cluster.events(job_id) if event["type"] == "job.state"]
    assert "all 2 ranks have saved and exited after step 17, as training.pause_at_steps says" in causes
    assert (await cluster.ask("PUT", job_id, "/resume")).status_code == 200
    job = await cluster.until_job(job_id, "running", generation=2)
    assert job["generations"][1]["start_step"] == 17


async def test_a_job_whose_node_drains_at_the_step_where_its_spec_pauses_it_is_paused(cluster: Cluster) -> None:
    """It was queued, placed again, and trained past that step."""
    a = await cluster.add_agent("a", slots=1)
    job_id = await cluster.submit(**RESTART, training={"steps": 100, "pause_at_steps": [17]})
    await cluster.until_job(job_id, "running")
    await a.step(job_id, 17)
    await cluster.client.delete(f"/api/v1/cluster/nodes/{(await cluster.nodes())['a']['id']}")
    await cluster.add_agent("b", slots=1)
    job = await cluster.until_job(job_id, "paused", end_reason="paused")
    assert (job["desired"], job["restarts"]) == ("pause", 0)
    assert [each["step"] for each in await cluster.checkpoints(job_id)] == [17]


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
    await cluster.elapse(61, a)
    await cluster.until_job(job_id, "cancelled")
    assert (await cluster.nodes())["a"]["slots"][0]["job_id"] == job_id


async def test_a_rank_is_noted_as_drained_once_what_it_left_survives_a_power_cut(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its node forgets its points and lines then."""
    noted: list[bool] = []

    async def look(_: Database) -> None:
        async with cluster.services.control.read() as session:
            noted.extend(await session.scalars(select(RankRow.drained)))

    monkeypatch.setattr(Database, "make_durable", look)
    a = await cluster.add_agent("a")
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    assert noted == []
    await a.complete(job_id)
    await cluster.until_job(job_id, "completed")
    assert noted[0] is False


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


async def test_a_rank_that_its_machine_forgot_has_failed(cluster: Cluster) -> None:
    a = await cluster.add_agent("a")
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    await a.forget_everything()
    await cluster.until_job(job_id, "running", generation=2, restarts=1)


async def test_a_time_limit_counts_what_all_generations_ran_and_no_pause(cluster: Cluster) -> None:
    a = await cluster.add_agent("a")
    job_id = await cluster.submit(**TWO_SLOTS, time_limit="1h30m")
    await cluster.until_job(job_id, "running")
    await a.step(job_id, 17)
    cluster.ahead += timedelta(hours=1)
    await cluster.hear(a)
    await cluster.ask("PUT", job_id, "/pause")
    job = await cluster.until_job(job_id, "paused")
    assert 3600 <= job["ran_seconds"] < 3700
    assert (job["time_limit_seconds"], job["time_limit_at"], 1700 < job["time_left_seconds"] <= 1800) == (5400, None, True)
    cluster.ahead += timedelta(hours=9)
    await cluster.hear(a)
    await cluster.ask("PUT", job_id, "/resume")
    job = await cluster.until_job(job_id, "running", generation=2)
    assert job["time_left_seconds"] > 1700
    assert job["time_limit_at"]
    await a.step(job_id, 42)
    cluster.ahead += timedelta(minutes=30)
    await cluster.hear(a)
    job = await cluster.until_job(job_id, "failed", end_reason="time_limit")
    assert (job["failure"], job["time_left_seconds"], job["restarts"]) == (None, None, 0)
    assert max(each["step"] for each in await cluster.checkpoints(job_id)) == 42
    assert (await cluster.client.get(f"/api/v1/training/jobs/{job_id}/incidents")).json() == []
    causes = [event["cause"] for event in await cluster.events(job_id) if event["type"] == "job.state"]
    assert causes[-2:] == ["it has run for 1h30m, its time_limit: its ranks save and exit", "saved; its slots are free"]


async def test_a_script_at_its_time_limit_is_ended_and_blames_no_rank(cluster: Cluster) -> None:
    a = await cluster.add_agent("a")
    script = {"model": None, "data": None, "training": None, "parallelism": {}, "script": {"path": "train.py"}}
    job_id = await cluster.submit(**script, time_limit=600)
    await cluster.until_job(job_id, "running")
    cluster.ahead += timedelta(minutes=10)
    await cluster.hear(a)
    job = await cluster.until_job(job_id, "failed", end_reason="time_limit")
    assert (job["failure"], job["ranks"][0]["signal"], job["restarts"]) == (None, "SIGTERM", 0)


async def test_a_job_that_has_run_on_a_gpu_waits_for_one_beside_free_cpu_slots(cluster: Cluster) -> None:
    """It went on on the CPU, a hundred times slower and to other bits, and stayed there."""
    gpu = await cluster.add_agent("g", slots=1, device="cuda")
    await cluster.add_agent("c", slots=2)
    job_id = await cluster.submit()
    await cluster.until_placed(job_id, ["g"])
    await cluster.ask("PUT", job_id, "/pause")
    await cluster.until_job(job_id, "paused")
    another = await cluster.submit()
    await cluster.until_placed(another, ["g"])
    await cluster.ask("PUT", job_id, "/resume")
    waits = await cluster.until_seen(lambda: cluster.job(job_id), lambda job: bool(job["pending"]))
    assert waits["pending"]["text"].endswith("; it cannot use c (device cpu, and it has run on cuda)")
    await gpu.complete(another)
    await cluster.until_placed(job_id, ["g"])
