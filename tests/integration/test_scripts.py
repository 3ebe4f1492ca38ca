"""Scripts that are ended on purpose, as the coordinator sees it: simulated agents on the real protocol."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from paceline.cluster.policy.script_worlds import REST_SECONDS
from tests.integration.conftest import Cluster
from tests.integration.test_draining import drain
from tests.integration.test_elastic import nodes_of, placed


def script(nodes: int = 1, **changes: Any) -> dict[str, Any]:
    """A job of one rank a node; `changes` are of its script."""
    resources = {"nodes": nodes, **changes.pop("resources", {})}
    rest = {"model": None, "data": None, "training": None, "parallelism": {}, "resources": resources}
    return rest | {"script": {"path": "train.py", **changes}}


async def causes(cluster: Cluster, job_id: str) -> list[str]:
    return [event["cause"] for event in await cluster.events(job_id) if event["type"] == "job.state"]


async def test_a_script_that_saves_is_paused_and_goes_on_in_a_new_generation(cluster: Cluster) -> None:
    agents = await nodes_of(cluster, "ab")
    job_id = await cluster.submit(**script(2, saves_on_sigterm=True))
    job = await cluster.until_job(job_id, "running")
    assert job["can_pause"]
    assert (await cluster.ask("PUT", job_id, "/pause")).status_code == 200
    job = await cluster.until_job(job_id, "paused", end_reason="paused")
    assert (job["failure"], [rank["signal"] for rank in job["ranks"]]) == (None, ["SIGTERM", "SIGTERM"])
    assert [slot["job_id"] for node in (await cluster.nodes()).values() for slot in node["slots"]] == [None, None]
    assert (await cluster.ask("PUT", job_id, "/resume")).status_code == 200
    job = await cluster.until_job(job_id, "running", generation=2)
    assert (job["restarts"], agents["a"].worlds(job_id)[0].restarts) == (0, 0)  # TORCHELASTIC_RESTART_COUNT
    assert (await cluster.client.get(f"/api/v1/training/jobs/{job_id}/incidents")).json() == []
    await agents["a"].crash(job_id, 0)
    await cluster.until_job(job_id, "running", generation=3, restarts=1)
    assert agents["a"].worlds(job_id)[0].restarts == 1


async def test_a_script_that_does_not_say_that_it_saves_is_not_paused_and_the_refusal_names_the_flag(cluster: Cluster) -> None:
    await nodes_of(cluster, "a")
    job_id = await cluster.submit(**script())
    assert not (await cluster.until_job(job_id, "running"))["can_pause"]
    answer = await cluster.ask("PUT", job_id, "/pause")
    assert (answer.status_code, answer.json()["code"]) == (409, "cannot_pause")
    assert "submit it with script.saves_on_sigterm=true" in answer.json()["detail"]


async def test_a_script_that_saves_leaves_a_node_that_drains(cluster: Cluster) -> None:
    await nodes_of(cluster, "ab")
    job_id = await cluster.submit(**script(saves_on_sigterm=True))
    before = placed(await cluster.until_job(job_id, "running"))
    await drain(cluster, before[0])
    job = await cluster.until_job(job_id, "running", generation=2)
    assert (placed(job), job["restarts"], job["failure"]) == ([name for name in "ab" if [name] != before], 0, None)
    assert (
        "drains: its ranks get SIGTERM, and 30s to save and exit, and the job waits for other slots" in (await causes(cluster, job_id))[1]
    )
    assert (await cluster.nodes())[before[0]]["state"] == "gone" or (await cluster.nodes())[before[0]]["drain_blocked_by"] == []


async def rest(cluster: Cluster, seconds: float) -> None:
    """Let the time between two worlds go by, in which every agent is heard."""
    cluster.ahead += timedelta(seconds=seconds)
    await cluster.hear(*cluster.agents)


async def test_an_elastic_script_starts_smaller_and_grows_when_a_node_comes(cluster: Cluster) -> None:
    a = (await nodes_of(cluster, "a"))["a"]
    job_id = await cluster.submit(**script(2, resources={"min_nodes": 1}))
    job = await cluster.until_job(job_id, "running", actual_world_size=1)
    await cluster.step()
    job = await cluster.job(job_id)
    assert (job["world_size"], job["can_resize"], job["pending"]["code"]) == (2, True, "no_room_to_grow")
    await nodes_of(cluster, "b")
    await cluster.until_seen(lambda: cluster.job(job_id), lambda job: job["pending"]["code"] == "rests")
    await rest(cluster, REST_SECONDS)
    job = await cluster.until_job(job_id, "running", actual_world_size=2)
    assert (job["generation"], job["restarts"], job["pending"]) == (2, 0, None)
    (world,) = a.worlds(job_id)
    assert (world.world_size, world.restarts) == (2, 0)
    assert (await causes(cluster, job_id))[1].startswith(
        "there is room for more: its ranks get SIGTERM and the time to save, and start again on 2"
    )
    assert (await cluster.client.get(f"/api/v1/training/jobs/{job_id}/incidents")).json() == []


async def test_an_elastic_script_goes_on_without_a_lost_node_and_takes_it_back_after_a_rest(cluster: Cluster) -> None:
    agents = await nodes_of(cluster, "ab")
    job_id = await cluster.submit(**script(2, resources={"min_nodes": 1}) | {"fault_tolerance": {"max_restarts": 0}})
    await cluster.until_job(job_id, "running", actual_world_size=2)
    await agents["b"].disconnect()
    await agents["a"].crash(job_id, 0, kind="peer_lost", message="Connection closed by peer")
    await cluster.elapse(61, agents["a"])
    job = await cluster.until_job(job_id, "running", actual_world_size=1)
    assert (placed(job), job["restarts"], job["generations"][0]["end_reason"]) == (["a"], 0, "node_lost")
    (incident,) = (await cluster.client.get(f"/api/v1/training/jobs/{job_id}/incidents")).json()
    assert "which does not count as a restart" in incident["why"]
    agents["b"].ranks.clear()
    await agents["b"].connect()
    await cluster.until_node("b", lambda node: node["state"] == "ready")
    await rest(cluster, 61 + REST_SECONDS)
    job = await cluster.until_job(job_id, "running", actual_world_size=2)
    assert job["restarts"] == 0
    await cluster.ask("PUT", job_id, "/resize", {"nodes": 1})
    assert len(placed(await cluster.until_job(job_id, "running", actual_world_size=1))) == 1
    await cluster.ask("PUT", job_id, "/resize", {"nodes": 2})
    job = await cluster.until_seen(lambda: cluster.job(job_id), lambda job: (job["pending"] or {}).get("code") == "rests")
    assert job["actual_world_size"] == 1  # its world has changed twice of late
    await rest(cluster, 4 * REST_SECONDS)
    await cluster.until_job(job_id, "running", actual_world_size=2)


async def test_what_an_elastic_script_grew_by_is_given_back_to_a_job_that_waits(cluster: Cluster) -> None:
    await nodes_of(cluster, "ab")
    job_id = await cluster.submit(**script(1, resources={"max_nodes": 2}))
    await cluster.until_job(job_id, "running", actual_world_size=2)  # at once: nobody waits
    other = await cluster.submit(**script())
    job = await cluster.until_job(job_id, "running", actual_world_size=1)
    assert job["generation"] == 2
    await cluster.until_job(other, "running")


async def test_an_elastic_script_leaves_a_node_that_drains_and_is_resized_within_its_limits(cluster: Cluster) -> None:
    await nodes_of(cluster, "abc")
    job_id = await cluster.submit(**script(2, resources={"min_nodes": 2, "max_nodes": 3}))
    await cluster.until_job(job_id, "running", actual_world_size=3)
    for nodes, limit in ((1, "less than resources.min_nodes=2"), (4, "more than resources.max_nodes=3")):
        answer = await cluster.ask("PUT", job_id, "/resize", {"nodes": nodes})
        assert (answer.status_code, limit in answer.json()["detail"]) == (409, True)
    await drain(cluster, "c")
    job = await cluster.until_job(job_id, "running", actual_world_size=2)
    assert (placed(job), job["restarts"]) == (["a", "b"], 0)


async def test_a_script_that_stops_only_to_grow_keeps_its_turn(cluster: Cluster) -> None:
    """A job that came later, and waits for all of the cluster, was placed in its stead."""
    await nodes_of(cluster, "a")
    job_id = await cluster.submit(**script(2, resources={"min_nodes": 1}))
    await cluster.until_job(job_id, "running", actual_world_size=1)
    later = await cluster.submit(**script(2))
    await nodes_of(cluster, "b")
    await rest(cluster, REST_SECONDS)
    await cluster.until_job(job_id, "running", actual_world_size=2)
    assert (await cluster.job(later))["state"] == "queued"


async def test_a_script_starts_again_where_its_own_folder_is_and_the_history_says_when_it_cannot(cluster: Cluster) -> None:
    await cluster.add_agent("a", slots=2)
    job_id = await cluster.submit(**script(saves_on_sigterm=True))
    await cluster.until_placed(job_id, ["a"])
    await cluster.add_agent("b", slots=1)  # a job without a folder would fill this node
    await cluster.until_job(job_id, "running")
    for change, state in (("pause", "paused"), ("resume", "running")):
        assert (await cluster.ask("PUT", job_id, f"/{change}")).status_code == 200
        await cluster.until_job(job_id, state)
    await cluster.until_placed(job_id, ["a"])
    await drain(cluster, "a")
    await cluster.until_placed(job_id, ["b"])
    messages = [event["message"] for event in await cluster.events(job_id) if event["type"] == "job.placed"]
    assert messages == [
        "generation 1 starts on a",
        "generation 2 starts on a",
        "generation 3 starts on b, without what the script saved in the job's own folder on a",
    ]
