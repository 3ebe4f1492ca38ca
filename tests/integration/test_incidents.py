"""The incident log while things happen: who is to blame, what phase it is in, how it ends."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from paceline.api.loops import incident_causes
from paceline.api.loops.nodes import LOST_SECONDS
from paceline.api.loops.placing import PlacementMemory
from paceline.cluster.policy.awaited_reports import CULPRIT_SECONDS
from tests.integration.conftest import JOBS, POLL_SECONDS, UNTIL_SECONDS, Cluster
from tests.integration.test_close_up import gang_of_three
from tests.simulated_agent import SimulatedAgent

TWO = {"resources": {"nodes": 2}, "parallelism": {"strategy": "ddp"}}
SCRIPT = {"model": None, "data": None, "training": None, "script": {"path": "train.py"}}
CALM = {"training": {"steps": 100, "global_batch_size": 8}}


async def incidents(cluster: Cluster, job_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await cluster.client.get(f"{JOBS}/{job_id}/incidents")).json()
    return found


async def until_outcome(cluster: Cluster, job_id: str, outcome: str) -> dict[str, Any]:
    """The newest incident, once it has come to this."""
    async with asyncio.timeout(UNTIL_SECONDS):
        while (found := (await incidents(cluster, job_id))[-1])["outcome"] != outcome:
            await cluster.step()
            await asyncio.sleep(POLL_SECONDS)
    return found


async def gang_of_two(cluster: Cluster, **changes: Any) -> tuple[str, SimulatedAgent, SimulatedAgent]:
    a, b = await cluster.add_agent("a", slots=1), await cluster.add_agent("b", slots=1)
    job_id = await cluster.submit(**TWO | CALM | {"fault_tolerance": {"recovery": "restart"}} | changes)
    await cluster.until_job(job_id, "running")
    return job_id, a, b


async def event_of(cluster: Cluster, job_id: str, type: str, **data: Any) -> dict[str, Any]:
    (found,) = [each for each in await cluster.events(job_id) if each["type"] == type and data.items() <= each["data"].items()]
    return found


def assert_adds_up(incident: dict[str, Any]) -> None:
    assert sum(phase["seconds"] for phase in incident["phases"]) == pytest.approx(incident["age_seconds"])
    assert all(phase["seconds"] >= 0 for phase in incident["phases"])


# --- the culprit


async def test_a_restart_waits_a_moment_for_the_culprits_word(cluster: Cluster) -> None:
    job_id, a, b = await gang_of_two(cluster)
    with cluster.standing_clock():
        await a.crash(job_id, 0, kind="peer_lost", message="Connection closed by peer")
        await cluster.until_seen(lambda: cluster.job(job_id), lambda job: job["ranks"][0]["state"] == "exited")
        for _ in range(3):
            await cluster.step()
        assert (await cluster.job(job_id))["state"] == "running"
        await b.crash(job_id, 1, kind="signal", message="killed by SIGKILL")
        await cluster.until_seen(lambda: cluster.job(job_id), lambda job: job["state"] != "running" or job["generation"] == 2)
    await cluster.until_job(job_id, "running", generation=2)
    assert "rank 1: killed by SIGKILL" in (await event_of(cluster, job_id, "job.state", to="recovering"))["cause"]
    (incident,) = await incidents(cluster, job_id)
    assert (incident["culprit"]["rank"], [victim["rank"] for victim in incident["culprit"]["victims"]]) == (1, [0])
    assert incident["why"] == "rank 1: killed by SIGKILL; restart 1 of 3"


async def test_a_culprit_that_is_heard_of_late_is_named_nevertheless(cluster: Cluster) -> None:
    job_id, a, b = await gang_of_two(cluster)
    b.obeys_stop = False
    await a.crash(job_id, 0, kind="peer_lost", message="Connection closed by peer")
    await cluster.until_job(job_id, "running")
    cluster.ahead += timedelta(seconds=CULPRIT_SECONDS)
    job = await cluster.until_job(job_id, "recovering")
    assert job["failure"]["rank"] == 0  # all that is known by now
    await b.crash(job_id, 1, kind="out_of_memory", message="out of memory")
    await cluster.until_job(job_id, "running", generation=2)
    (incident,) = await incidents(cluster, job_id)
    assert (incident["cause"], incident["culprit"]["rank"]) == ("out_of_memory", 1)
    assert incident["why"] == "rank 1: out of memory; restart 1 of 3"
    assert incident["what"] == "rank 1 on b ran out of memory: out of memory"
    known = await event_of(cluster, job_id, "job.culprit_known")
    assert known["message"] == "rank 1 was to blame; rank 0 was heard of first, and was dragged down"
    assert known["data"]["incident_id"] == incident["id"]


async def test_a_rank_that_left_the_group_and_went_on_is_to_blame_and_not_the_one_that_lost_it(cluster: Cluster) -> None:
    """It had fewer batches, and saved: it was ended because of the other one, which was blamed, after each restart again."""
    job_id, a, b = await gang_of_two(cluster, **SCRIPT)
    b.obeys_stop = False
    await a.crash(job_id, 0, kind="peer_lost", message="Connection closed by peer")
    await cluster.until_job(job_id, "running")
    cluster.ahead += timedelta(seconds=CULPRIT_SECONDS)
    await cluster.until_job(job_id, "recovering")
    await b.crash(job_id, 1, kind="signal", message="killed by SIGTERM", ordered=True)
    await cluster.until_job(job_id, "running", generation=2)
    (incident,) = await incidents(cluster, job_id)
    assert incident["what"].startswith("rank 1 on b left too early: still ran, and had raised nothing, after all others had lost")
    assert [victim["rank"] for victim in incident["culprit"]["victims"]] == [0]
    assert incident["why"].endswith("restart 1 of 3")


async def test_the_end_of_a_job_does_not_bring_back_the_rank_that_only_lost_the_culprit(cluster: Cluster) -> None:
    """Its page, and its command line, blamed rank 0, and its incident rank 1."""
    job_id, a, b = await gang_of_two(cluster, **SCRIPT | {"fault_tolerance": {"max_restarts": 0}})
    b.obeys_stop = False
    await a.crash(job_id, 0, kind="peer_lost", message="Connection closed by peer")
    await cluster.until_job(job_id, "running")
    cluster.ahead += timedelta(seconds=CULPRIT_SECONDS)
    await cluster.until_job(job_id, "stopping")
    await b.crash(job_id, 1, kind="signal", message="killed by SIGTERM", ordered=True)
    async with asyncio.timeout(UNTIL_SECONDS):
        state = ""
        while state != "exited":
            await asyncio.sleep(POLL_SECONDS)
            state = (await cluster.job(job_id))["ranks"][1]["state"]
    await incident_causes.step_once(cluster.services, cluster.now())  # the report came between this loop and the one before it
    corrected = (await cluster.job(job_id))["failure"]
    assert corrected["message"].startswith("still ran, and had raised nothing, after all others had lost")
    assert (corrected["rank"], [victim["rank"] for victim in corrected["victims"]]) == (1, [0])
    assert (await cluster.until_job(job_id, "failed"))["failure"] == corrected


async def victim_heard_before_its_culprit(cluster: Cluster) -> str:
    """A job that is to restart on the word of rank 0; that of rank 1, which no restart would help, is on its way."""
    job_id, a, b = await gang_of_two(cluster)
    b.obeys_stop = False
    await a.crash(job_id, 0, kind="peer_lost", message="Connection closed by peer")
    await cluster.until_seen(lambda: cluster.job(job_id), lambda job: bool(job["ranks"][0]["state"] == "exited"))
    cluster.ahead += timedelta(seconds=CULPRIT_SECONDS)
    await cluster.until_job(job_id, "recovering")
    await b.crash(job_id, 1, kind="invalid_input", message="no such column")
    return job_id


async def test_a_restart_that_turns_out_to_be_of_no_use_is_still_one_incident(cluster: Cluster) -> None:
    job_id = await victim_heard_before_its_culprit(cluster)
    await cluster.until_job(job_id, "failed")
    (incident,) = await incidents(cluster, job_id)
    assert (incident["action"], incident["cause"], incident["culprit"]["rank"]) == ("gave_up", "invalid_input", 1)
    assert incident["why"] == "rank 1: no such column; restarting would not help"
    assert_adds_up(incident)


async def test_no_generation_starts_on_what_was_known_before_the_last_rank_told_how_it_ended(cluster: Cluster) -> None:
    """Its word may come after the scheduler has decided all that there was to decide, and before it places those that wait."""
    job_id = await victim_heard_before_its_culprit(cluster)
    job = await cluster.job(job_id)
    async with asyncio.timeout(UNTIL_SECONDS):
        while job["ranks"][1]["state"] != "exited":
            await asyncio.sleep(POLL_SECONDS)
            job = await cluster.job(job_id)
    await PlacementMemory(cluster.services).step_once(cluster.now())
    assert (await cluster.job(job_id))["generation"] == 1
    await cluster.until_job(job_id, "failed", generation=1)


async def test_a_job_that_gave_up_shows_the_culprit_and_not_its_victim(cluster: Cluster) -> None:
    job_id, a, b = await gang_of_two(cluster, fault_tolerance={"recovery": "restart", "max_restarts": 0})
    b.obeys_stop = False
    await a.crash(job_id, 0, kind="peer_lost", message="Connection closed by peer")
    cluster.ahead += timedelta(seconds=CULPRIT_SECONDS)
    await cluster.until_job(job_id, "stopping")
    await b.crash(job_id, 1, message="a bad batch")
    job = await cluster.until_job(job_id, "failed")
    await cluster.step()
    (incident,) = await incidents(cluster, job_id)
    for failure in (job["failure"], incident["culprit"]):
        assert (failure["rank"], failure["message"], [victim["rank"] for victim in failure["victims"]]) == (1, "a bad batch", [0])
    assert (incident["action"], incident["outcome"], incident["done"]) == ("gave_up", "stopped", "the job was stopped")
    assert_adds_up(incident)


async def test_an_agent_that_is_gone_is_the_culprit_and_not_its_peers(cluster: Cluster) -> None:
    job_id, agents, _ = await gang_of_three(cluster)
    await agents["b"].disconnect()
    await agents["a"].lose_peer(job_id)
    await cluster.until_job(job_id, "running", generation=2)
    (incident,) = await incidents(cluster, job_id)
    assert (incident["cause"], incident["culprit"]["kind"], incident["culprit"]["node_name"]) == ("node_lost", "node_lost", "b")
    assert [victim["rank"] for victim in incident["culprit"]["victims"]] == [0]
    assert (incident["old_size"], incident["new_size"], incident["survivors"]) == (3, 2, [0, 2])
    assert incident["what"].startswith("rank 1 on b was lost with its node")


async def test_survivors_that_report_later_are_folded_under_the_culprit(cluster: Cluster) -> None:
    job_id, agents, _ = await gang_of_three(cluster)
    await agents["a"].lose_peer(job_id)
    await agents["b"].crash(job_id, 1, kind="signal", message="killed by SIGKILL")
    await cluster.until_job(job_id, "running", generation=2)
    await cluster.step()
    (incident,) = await incidents(cluster, job_id)
    assert (incident["culprit"]["rank"], [victim["rank"] for victim in incident["culprit"]["victims"]]) == (1, [0])
    assert not [event for event in await cluster.events(job_id) if event["type"] == "job.culprit_known"]  # it was known


# --- its course


async def test_an_open_incident_shows_how_far_it_is_and_its_age(cluster: Cluster) -> None:
    job_id, a, b = await gang_of_two(cluster)
    b.obeys_stop = False
    await a.crash(job_id, 0)
    await cluster.until_job(job_id, "recovering")
    (incident,) = await incidents(cluster, job_id)
    assert (incident["outcome"], incident["outage_seconds"], incident["over_at"]) == ("open", None, None)
    assert [phase["name"] for phase in incident["phases"] if phase["under_way"]] == ["fence"]  # b has yet to stop
    assert incident["age_seconds"] > 0
    assert_adds_up(incident)


async def test_a_restart_is_told_phase_by_phase(cluster: Cluster) -> None:
    job_id, a, b = await gang_of_two(cluster)
    folder = await a.save_checkpoint(job_id, 5)
    await a.step(job_id, 9)
    await b.crash(job_id, 1)
    await cluster.until_job(job_id, "running", generation=2)
    leader = next(rank for (_, generation, _), rank in a.ranks.items() if generation == 2)
    await a.tell(leader, "checkpoint_restored", {"directory": folder, "step": 5})
    await a.step(job_id, 6)
    incident = await until_outcome(cluster, job_id, "recovered")
    assert (incident["resumed_step"], incident["steps_lost"]) == (5, 4)
    assert [phase["name"] for phase in incident["phases"]] == ["detect", "decide", "fence", "place", "transfer", "first_step"]
    assert_adds_up(incident)
    assert incident["outage_seconds"] == pytest.approx(incident["age_seconds"])


async def test_a_fault_that_overtakes_a_recovery_ends_its_incident(cluster: Cluster) -> None:
    job_id, _, b = await gang_of_two(cluster)
    await b.crash(job_id, 1)
    await cluster.until_job(job_id, "running", generation=2)
    await b.crash(job_id, 1)
    await cluster.until_job(job_id, "running", generation=3)
    first, second = await incidents(cluster, job_id)
    assert (first["outcome"], first["next_generation"], first["over_at"]) == ("overtaken", 2, second["fault_at"])
    assert (second["outcome"], second["next_generation"]) == ("open", 3)
    assert_adds_up(first)
    assert_adds_up(second)


async def test_a_node_with_a_clock_years_late_makes_no_outage_of_years(cluster: Cluster) -> None:
    job_id, _, b = await gang_of_two(cluster)
    await b.crash(job_id, 1)  # at second 1 of 1970, it says
    await cluster.until_job(job_id, "recovering")
    (incident,) = await incidents(cluster, job_id)
    assert incident["fault_at"] == (await cluster.job(job_id))["generations"][0]["started_at"]


async def lost_after_silence(cluster: Cluster, job_id: str, *alive: SimulatedAgent) -> dict[str, Any]:
    """The incident of a job one of whose nodes has fallen silent, once the node is lost."""
    await cluster.elapse(LOST_SECONDS + 2, *alive)
    await cluster.until_job(job_id, "recovering")
    (incident,) = await incidents(cluster, job_id)
    assert incident["cause"] == "node_lost"
    assert_adds_up(incident)
    return incident


async def test_the_outage_by_a_lost_node_begins_when_it_was_last_heard_of(cluster: Cluster) -> None:
    """It began when the node was declared lost, 45 s later."""
    job_id, a, _ = await gang_of_two(cluster)
    with cluster.standing_clock():
        incident = await lost_after_silence(cluster, job_id, a)
    detect = next(phase["seconds"] for phase in incident["phases"] if phase["name"] == "detect")
    assert detect == pytest.approx(LOST_SECONDS, abs=5.0)


async def test_a_gang_that_makes_steps_while_a_node_is_silent_is_out_from_the_last_of_them(cluster: Cluster) -> None:
    job_id, a, _ = await gang_of_two(cluster)
    await cluster.elapse(20, a)
    await a.step(job_id, 7)
    last_step_at = cluster.now()
    incident = await lost_after_silence(cluster, job_id, a)
    assert abs((datetime.fromisoformat(incident["fault_at"]) - last_step_at).total_seconds()) < 5.0


@pytest.mark.parametrize(("method", "verb", "state"), [("PUT", "/pause", "paused"), ("DELETE", "", "cancelled")])
async def test_a_recovery_that_its_user_stops_is_over(cluster: Cluster, method: str, verb: str, state: str) -> None:
    job_id, a, b = await gang_of_two(cluster)
    b.obeys_stop = False
    await a.crash(job_id, 0)
    await cluster.until_job(job_id, "recovering")
    await cluster.ask(method, job_id, verb)
    b.obeys_stop = True
    await b.crash(job_id, 1, kind="signal", message="killed by SIGTERM")
    await cluster.until_job(job_id, state)
    (incident,) = await incidents(cluster, job_id)
    assert (incident["outcome"], incident["first_step_at"]) == ("stopped", None)
    assert_adds_up(incident)
    if state == "paused":
        before = incident["over_at"]
        await cluster.ask("PUT", job_id, "/resume")
        await cluster.until_job(job_id, "running")
        (incident,) = await incidents(cluster, job_id)
        assert (incident["over_at"], incident["next_generation"]) == (before, None)


async def test_goodput_over_a_real_history_adds_up(cluster: Cluster) -> None:
    """Every event that the coordinator writes about a job is understood."""
    job_id, a, b = await gang_of_two(cluster)
    await b.crash(job_id, 1)
    await cluster.until_job(job_id, "running", generation=2)
    await a.step(job_id, 1)
    await until_outcome(cluster, job_id, "recovered")
    await cluster.ask("PUT", job_id, "/pause")
    await cluster.until_job(job_id, "paused")
    await cluster.ask("PUT", job_id, "/resume")
    await cluster.until_job(job_id, "running", generation=3)
    await a.complete(job_id)
    await b.complete(job_id)
    await cluster.until_job(job_id, "completed")
    found = (await cluster.client.get(f"{JOBS}/{job_id}/goodput")).json()
    parts = {part["cause"]: part["seconds"] for part in found["parts"]}
    assert sum(parts.values()) == pytest.approx(found["wall_seconds"])
    assert parts.keys() == {"stepping", "starting", "incident", "pausing", "unaccounted"}  # its ranks told of no step
    assert found["paused_seconds"] > 0
    (incident,) = found["incidents"]
    assert incident["seconds"] == pytest.approx(parts["incident"])


async def test_a_node_that_a_person_removes_is_no_fault_of_the_job(cluster: Cluster) -> None:
    job_id, a, _ = await gang_of_two(cluster)
    await cluster.add_agent("c", slots=1)
    node_id = (await cluster.nodes())["b"]["id"]
    await cluster.client.delete(f"/api/v1/cluster/nodes/{node_id}", params={"force": "true"})
    await a.crash(job_id, 0, kind="peer_lost", message="Connection closed by peer")
    job = await cluster.until_job(job_id, "running", generation=2)
    await a.step(job_id, 1)
    incident = await until_outcome(cluster, job_id, "recovered")
    name = (await cluster.client.get("/api/v1/auth/me")).json()["name"]
    assert incident["what"] == f"rank 1 on b ended with its node: removed by {name}"
    assert (incident["cause"], incident["culprit"]["kind"]) == ("node_removed", "node_removed")
    assert [victim["rank"] for victim in incident["culprit"]["victims"]] == [0]
    assert job["restarts"] == 0  # none of its allowed restarts is used up
    goodput = (await cluster.client.get(f"{JOBS}/{job_id}/goodput")).json()
    causes = {part["cause"] for part in goodput["parts"]}
    assert "incident" not in causes
    assert "resizing" in causes
