"""Growing back, growing, shrinking and leaving nodes, as the coordinator sees it: simulated agents on the real protocol."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from paceline.cluster.policy.elastic import LONGEST_RETRY_SECONDS, MOST_FAILURES, RETRY_SECONDS
from paceline.cluster.policy.recovery import ENTER_SECONDS
from paceline.cluster.states import RankState
from tests.integration.conftest import Cluster
from tests.integration.test_close_up import members
from tests.simulated_agent import SimulatedAgent

SCRIPT = {"model": None, "data": None, "training": None, "script": {"path": "train.py"}, "parallelism": {"strategy": "ddp"}}
TRAINING = {"steps": 100, "global_batch_size": 12}


def elastic(nodes: int, *, spares: int = 0, recovery: str = "close_up", **resources: Any) -> dict[str, Any]:
    return {
        "resources": {"nodes": nodes, **resources},
        "parallelism": {"strategy": "ddp"},
        "fault_tolerance": {"recovery": recovery, "max_restarts": 0, "spares": spares},
        "training": TRAINING,
    }


async def nodes_of(cluster: Cluster, names: str, **manner: Any) -> dict[str, SimulatedAgent]:
    return {name: await cluster.add_agent(name, slots=1, **manner) for name in names}


def placed(job: dict[str, Any]) -> list[str]:
    return [rank["node_name"] for rank in members(job)]


def parked(job: dict[str, Any]) -> list[tuple[str, str]]:
    return [(rank["node_name"], rank["state"]) for rank in job["ranks"] if rank["parked"]]


async def kinds(cluster: Cluster, job_id: str) -> list[str]:
    return [event["type"] for event in await cluster.events(job_id)]


async def until_size(cluster: Cluster, job_id: str, size: int, **fields: Any) -> dict[str, Any]:
    return await cluster.until_job(job_id, "running", actual_world_size=size, **fields)


async def until_told(cluster: Cluster, job_id: str, kind: str, times: int) -> None:
    """Agents speak on channels of their own: the clock must not be put forward before the coordinator has heard."""
    await cluster.until_seen(lambda: kinds(cluster, job_id), lambda found: found.count(kind) >= times)


async def until_entered(cluster: Cluster, job_id: str, rank: int) -> None:
    """It has left the generation before, and waits for the others of this one."""
    entered = ("resizing", "starting")
    await cluster.until_seen(lambda: cluster.job(job_id), lambda job: (job["state"], job["ranks"][rank]["state"]) == entered)


async def until_given_up(cluster: Cluster, job_id: str) -> dict[str, Any]:
    """As many joiners have ended as are tried, and the coordinator has heard of the last one."""
    all_of_them = f"; {MOST_FAILURES} that were to join ended"
    job = await cluster.until_seen(lambda: cluster.job(job_id), lambda job: all_of_them in (job["pending"] or {}).get("text", ""))
    assert job["pending"]["code"] == "cannot_join"
    return job


async def test_a_lost_rank_is_replaced_and_the_others_never_notice_more_than_a_step(cluster: Cluster) -> None:
    agents = await nodes_of(cluster, "ab")
    job_id = await cluster.submit(**elastic(2))
    before = await cluster.until_job(job_id, "running")
    await agents["b"].crash(job_id, 1, kind="signal")
    job = await until_size(cluster, job_id, 2, generation=3)
    assert placed(job) == ["a", "b"]
    assert members(job)[0]["pid"] == before["ranks"][0]["pid"]
    assert [(each["world_size"], each["at_boundary"], each["end_reason"]) for each in job["generations"]] == [
        (2, False, "rank_crashed"),
        (1, False, "resized"),
        (2, True, None),
    ]
    (grew,) = [event for event in await cluster.events(job_id) if event["type"] == "job.grew"]
    assert (grew["data"]["ranks_before"], grew["data"]["ranks_after"], grew["data"]["joined"]) == (1, 2, [1])
    incidents = (await cluster.client.get(f"/api/v1/training/jobs/{job_id}/incidents")).json()
    assert [incident["action"] for incident in incidents] == ["closed_up"]  # growing back is none


async def test_a_spare_takes_the_place_of_the_dead_in_one_change(cluster: Cluster) -> None:
    agents = await nodes_of(cluster, "abc")
    job_id = await cluster.submit(**elastic(2, spares=1))
    await cluster.until_job(job_id, "running")
    await cluster.until(lambda: any(rank.state is RankState.PARKED for rank in agents["c"].ranks.values()), "the spare is warm")
    await agents["b"].crash(job_id, 1, kind="signal")
    job = await until_size(cluster, job_id, 2, generation=2)
    assert placed(job) == ["a", "c"]
    (incident,) = (await cluster.client.get(f"/api/v1/training/jobs/{job_id}/incidents")).json()
    assert "with spare rank 2" in incident["why"]
    job = await cluster.until_job(job_id, "running", generation=2, pending=None)
    await cluster.until(lambda: any(rank.state is RankState.PARKED for rank in agents["b"].ranks.values()), "there is a spare again")
    assert (await cluster.job(job_id))["generation"] == 2


async def test_resizing_while_it_runs(cluster: Cluster) -> None:
    await nodes_of(cluster, "abc")
    job_id = await cluster.submit(**elastic(2))
    await cluster.until_job(job_id, "running")
    answer = await cluster.ask("PUT", job_id, "/resize", {"nodes": 3})
    assert (answer.status_code, answer.json()["world_size"]) == (200, 3)
    assert placed(await until_size(cluster, job_id, 3)) == ["a", "b", "c"]
    await cluster.ask("PUT", job_id, "/resize", {"nodes": 1})
    assert placed(await until_size(cluster, job_id, 1)) == ["a"]
    await cluster.until(lambda: [len(agent.ranks) for agent in cluster.agents] == [1, 0, 0], "the released ranks are gone")
    assert [kind for kind in await kinds(cluster, job_id) if kind in ("job.grew", "job.shrank")] == ["job.grew", "job.shrank"]


async def test_everyone_trains_on_until_the_step_they_agreed_on(cluster: Cluster) -> None:
    agents = await nodes_of(cluster, "ab", crosses_at_once=False)
    job_id = await cluster.submit(**elastic(2))
    await cluster.until_job(job_id, "running")
    await cluster.ask("PUT", job_id, "/resize", {"nodes": 1})
    await cluster.until_job(job_id, "resizing")
    await cluster.until(lambda: (agents["a"].action(job_id), agents["b"].action(job_id)) == ("run", "release"), "the agents are told")
    cluster.ahead = timedelta(hours=1)
    await cluster.hear(*agents.values())
    for _ in range(3):
        await cluster.step()
    assert (await cluster.job(job_id))["state"] == "resizing"  # a step may take as long as it takes
    for agent in agents.values():
        await agent.cross(job_id)
    await until_size(cluster, job_id, 1)


async def test_a_job_that_restarts_is_resized_over_a_checkpoint(cluster: Cluster) -> None:
    agents = await nodes_of(cluster, "abc")
    job_id = await cluster.submit(**elastic(2, recovery="restart"))
    await cluster.until_job(job_id, "running")
    for agent in agents.values():
        if agent.ranks:
            await agent.step(job_id, 5)
    await cluster.ask("PUT", job_id, "/resize", {"nodes": 3})
    job = await until_size(cluster, job_id, 3, restarts=0)
    assert [(each["world_size"], each["end_reason"], each["start_step"]) for each in job["generations"]] == [
        (2, "resized", 0),
        (3, None, 5),
    ]


async def test_a_job_that_asks_for_slots_is_resized_in_slots(cluster: Cluster) -> None:
    a = await cluster.add_agent("a", slots=3)
    job_id = await cluster.submit(**elastic(2) | {"resources": {"slots": 2, "min_slots": 1}})
    job = await cluster.until_job(job_id, "running")
    assert [(rank["node_name"], rank["slot"]) for rank in job["ranks"]] == [("a", 0), ("a", 1)]
    refused = (await cluster.ask("PUT", job_id, "/resize", {"nodes": 3})).json()
    assert (refused["code"], "give slots" in refused["detail"]) == ("cannot_resize", True)
    assert (await cluster.ask("PUT", job_id, "/resize", {"nodes": 1, "slots": 1})).status_code == 422
    await a.step(job_id, 5)
    await cluster.ask("PUT", job_id, "/resize", {"slots": 3})
    await until_size(cluster, job_id, 3, restarts=0)


async def test_a_paused_job_is_resized_when_it_is_resumed(cluster: Cluster) -> None:
    await nodes_of(cluster, "abc")
    job_id = await cluster.submit(**elastic(2))
    await cluster.until_job(job_id, "running")
    await cluster.ask("PUT", job_id, "/pause")
    await cluster.until_job(job_id, "paused")
    assert (await cluster.ask("PUT", job_id, "/resize", {"nodes": 3})).json()["state"] == "paused"
    await cluster.ask("PUT", job_id, "/resume")
    await until_size(cluster, job_id, 3, generation=2)


async def test_parked_ranks_leave_with_the_job(cluster: Cluster) -> None:
    agents = await nodes_of(cluster, "abc")
    job_id = await cluster.submit(**elastic(2, spares=1))
    await cluster.until_job(job_id, "running")
    await cluster.until(lambda: bool(agents["c"].ranks), "there is a spare")
    await cluster.ask("PUT", job_id, "/pause")
    await cluster.until_job(job_id, "paused")
    await cluster.until(lambda: not any(agent.ranks for agent in agents.values()), "every slot is free")
    await cluster.ask("PUT", job_id, "/resume")
    await cluster.until_job(job_id, "running")
    await cluster.until(lambda: bool(agents["c"].ranks), "there is a spare again")
    for name in "ab":
        await agents[name].complete(job_id)
    await cluster.until_job(job_id, "completed")
    await cluster.until(lambda: not any(agent.ranks for agent in agents.values()), "every slot is free")


async def test_a_job_grows_into_unwanted_slots_and_gives_them_back(cluster: Cluster) -> None:
    await nodes_of(cluster, "abc")
    job_id = await cluster.submit(**elastic(1, max_nodes=3))
    job = await until_size(cluster, job_id, 3)
    assert job["world_size"] == 1
    other = await cluster.submit(name="other")
    await cluster.until_job(other, "running")
    await until_size(cluster, job_id, 2)  # what is left
    await cluster.ask("DELETE", other)
    await cluster.until_job(other, "cancelled")
    await until_size(cluster, job_id, 3)


async def test_a_queued_job_starts_with_as_many_nodes_as_there_are_and_grows_later(cluster: Cluster) -> None:
    await nodes_of(cluster, "ab")
    job_id = await cluster.submit(**elastic(3, min_nodes=2))
    job = await until_size(cluster, job_id, 2)
    assert job["pending"] is None or job["pending"]["code"] == "no_room_to_grow"
    await cluster.add_agent("c", slots=1)
    assert placed(await until_size(cluster, job_id, 3, generation=2)) == ["a", "b", "c"]


async def test_a_parked_rank_that_dies_is_no_incident_and_is_tried_again_ever_more_slowly(cluster: Cluster) -> None:
    agents = await nodes_of(cluster, "ab", parks_at_once=False)
    job_id = await cluster.submit(**elastic(1, spares=1))
    await cluster.until_job(job_id, "running")
    empty = agents["b"]
    for attempt in range(1, MOST_FAILURES + 1):
        await cluster.until(lambda: any(rank.state is not RankState.EXITED for rank in empty.ranks.values()), f"attempt {attempt}")
        await empty.crash(job_id, attempt, message="no such device")
        await until_told(cluster, job_id, "rank.exited", attempt)
        cluster.ahead += timedelta(seconds=LONGEST_RETRY_SECONDS)
        await cluster.hear(*agents.values())
    job = await until_given_up(cluster, job_id)
    assert "no such device" in job["pending"]["text"]
    for _ in range(3):
        await cluster.step()
    await cluster.until_job(job_id, "running", generation=1, restarts=0, pending=job["pending"])
    assert len(empty.started) == MOST_FAILURES
    assert (await cluster.client.get(f"/api/v1/training/jobs/{job_id}/incidents")).json() == []
    retries = [event["cause"] for event in await cluster.events(job_id) if event["type"] == "job.parked"]
    assert len(retries) == MOST_FAILURES
    assert "attempt 2, the last one ended because: no such device" in retries[1]


async def test_a_newcomer_that_never_comes_is_left_behind(cluster: Cluster) -> None:
    agents = await nodes_of(cluster, "ab")
    agents["b"].crosses_at_once = False
    job_id = await cluster.submit(**elastic(1))
    await cluster.until_job(job_id, "running")
    agents["a"].reports_joined = False
    await cluster.ask("PUT", job_id, "/resize", {"nodes": 2})
    await until_entered(cluster, job_id, 0)
    cluster.ahead = timedelta(seconds=ENTER_SECONDS + 1)
    await cluster.hear(*agents.values())
    agents["a"].reports_joined = True
    job = await cluster.until_job(job_id, "running", generation=3, restarts=0)
    assert placed(job) == ["a"]
    (event,) = [event for event in await cluster.events(job_id) if event["type"] == "job.closed_up"]
    assert "rank 1 did not join" in event["cause"]


async def test_a_newcomer_that_dies_on_its_way_is_left_behind(cluster: Cluster) -> None:
    agents = await nodes_of(cluster, "ab", crosses_at_once=False)
    job_id = await cluster.submit(**elastic(1))
    await cluster.until_job(job_id, "running")
    await cluster.ask("PUT", job_id, "/resize", {"nodes": 2})
    await cluster.until_job(job_id, "resizing")
    await agents["b"].crash(job_id, 1, message="boom")  # an exception of its own: the others have done without it so far
    job = await cluster.until_job(job_id, "running", generation=3, restarts=0)
    assert placed(job) == ["a"]


async def test_what_was_saved_on_the_way_to_the_boundary_is_good(cluster: Cluster) -> None:
    agents = await nodes_of(cluster, "ab", crosses_at_once=False)
    job_id = await cluster.submit(**elastic(2))
    await cluster.until_job(job_id, "running")
    old = next(rank for place, rank in agents["a"].ranks.items() if place[1] == 1)
    await cluster.ask("PUT", job_id, "/resize", {"nodes": 1})
    await cluster.until_job(job_id, "resizing")
    data = {"directory": f"/c/{job_id}/step-9.g1", "step": 9, "bytes": 1, "manifest_sha256": "0" * 64, "metrics": {}}
    await agents["a"].tell(old, "checkpoint_committed", data)
    assert [(each["step"], each["state"]) for each in await cluster.checkpoints(job_id)] == [(9, "committed")]


@pytest.mark.parametrize(
    ("spec", "nodes", "status", "code", "detail"),
    [
        (elastic(2, min_nodes=2), 1, 409, "cannot_resize", "nodes=1 is less than resources.min_nodes=2 of job digits; use 2 or more"),
        (elastic(2, max_nodes=3), 4, 409, "cannot_resize", "nodes=4 is more than resources.max_nodes=3 of job digits; use 3 or fewer"),
        (elastic(2), 13, 409, "cannot_resize", "makes 6, fewer than 13 ranks; use 6 or fewer"),
        (elastic(2), 0, 422, "invalid_request", "nodes"),
        ({"parallelism": {"strategy": "single"}}, 2, 409, "cannot_resize", "submit it with strategy ddp"),
        (SCRIPT, 2, 409, "cannot_resize", "job digits runs a script that has one size only; submit it with resources.min_nodes"),
    ],
)
async def test_sizes_that_a_job_cannot_have(
    cluster: Cluster, spec: dict[str, Any], nodes: int, status: int, code: str, detail: str
) -> None:
    job_id = await cluster.submit(**spec)
    answer = await cluster.ask("PUT", job_id, "/resize", {"nodes": nodes})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert detail in answer.text


@pytest.mark.parametrize(("slots", "nearest"), [(1, "2"), (5, "4 or 6")])
async def test_slots_that_make_no_whole_nodes_are_refused_with_the_nearest_that_do(cluster: Cluster, slots: int, nearest: str) -> None:
    job_id = await cluster.submit(**elastic(1, slots_per_node=2))
    answer = (await cluster.ask("PUT", job_id, "/resize", {"slots": slots})).json()
    assert (answer["code"], answer["detail"]) == (
        "cannot_resize",
        f"slots={slots} is no multiple of resources.slots_per_node=2 of job digits; use {nearest}",
    )


async def test_a_resize_honours_the_revision_and_needs_a_job_that_has_not_ended(cluster: Cluster) -> None:
    job_id = await cluster.submit(**elastic(2))
    path = f"/api/v1/training/jobs/{job_id}/resize"
    assert (await cluster.client.put(path, json={"nodes": 1}, headers={"If-Match": '"99"'})).status_code == 412
    assert (await cluster.client.put(path, json={"nodes": 1})).status_code == 200
    await cluster.ask("DELETE", job_id)
    await cluster.until_job(job_id, "cancelled")
    assert (await cluster.ask("PUT", job_id, "/resize", {"nodes": 1})).json()["code"] == "job_finished"


async def test_a_slot_that_ends_every_joiner_is_not_tried_for_ever(cluster: Cluster) -> None:
    agents = await nodes_of(cluster, "ab")
    job_id = await cluster.submit(**elastic(2))
    await cluster.until_job(job_id, "running")
    for attempt in range(MOST_FAILURES + 1):  # the first to end was no joiner
        await until_size(cluster, job_id, 2)
        await agents["b"].crash(job_id, 1, kind="signal", message="bad memory")
        await until_size(cluster, job_id, 1)
        if 0 < attempt < MOST_FAILURES:
            cluster.ahead += timedelta(seconds=RETRY_SECONDS * 2 ** (attempt - 1))
            await cluster.hear(*agents.values())
    job = await until_given_up(cluster, job_id)
    assert "bad memory" in job["pending"]["text"]
    for _ in range(3):
        await cluster.step()
    await cluster.until_job(job_id, "running", actual_world_size=1, restarts=0, pending=job["pending"])
    assert len(agents["b"].started) == 1 + MOST_FAILURES
