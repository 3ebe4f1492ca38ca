"""Scripts that hang as the coordinator sees them: simulated agents on the real protocol, with stacks of real ranks."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from paceline.cluster.policy.quiet import CONFIRM_SECONDS
from paceline.cluster.stacks import StackSample
from tests.cluster.recorded import recorded
from tests.integration.conftest import JOBS, Cluster
from tests.simulated_agent import SimulatedAgent

SCRIPT: dict[str, Any] = {"model": None, "data": None, "training": None, "parallelism": {"strategy": "ddp"}, "script": {"path": "f.py"}}
TOLD, WITHDRAWN = "job.hang_suspected", "job.hang_withdrawn"
WHAT = "rank 1 is at f.py:24 while rank 0 waits in all_reduce (step in f.py:9)"


def seen(rank: int, *, cores: float = 0.0) -> StackSample:
    stacks = recorded("loop", cores=cores)[rank]
    assert stacks is not None
    return stacks


async def two_ranks(cluster: Cluster, **fault_tolerance: Any) -> tuple[str, list[SimulatedAgent]]:
    """Rank 1 loops for ever, rank 0 waits for it."""
    agents = [await cluster.add_agent(name, slots=1, seen=seen(rank, cores=1.0)) for rank, name in enumerate("ab")]
    spec = SCRIPT | {"resources": {"nodes": 2}, "fault_tolerance": {"max_restarts": 1} | fault_tolerance}
    job_id = await cluster.submit(**spec)
    await cluster.until_job(job_id, "running")
    return job_id, agents


async def fall_quiet(cluster: Cluster, job_id: str, agents: list[SimulatedAgent], ago: float = 400.0) -> None:
    for agent in agents:
        await agent.fall_quiet(job_id, cluster.now().timestamp() - ago)


async def told(cluster: Cluster, job_id: str) -> list[dict[str, Any]]:
    return [event for event in await cluster.events(job_id) if event["type"] in (TOLD, WITHDRAWN)]


async def until_looked_at(cluster: Cluster, agents: list[SimulatedAgent], looks: int) -> None:
    await cluster.until(lambda: all(len(agent.looks) == looks for agent in agents), f"stacks were read {looks} time(s)")


async def until_told(cluster: Cluster, job_id: str, agents: list[SimulatedAgent]) -> dict[str, Any]:
    """At the second look."""
    await until_looked_at(cluster, agents, 1)
    for _ in range(3):
        await cluster.step()
    assert await told(cluster, job_id) == []
    cluster.ahead += timedelta(seconds=CONFIRM_SECONDS)
    await cluster.hear(*agents)
    return await cluster.until_seen(lambda: cluster.job(job_id), lambda job: job["hang"] is not None)


async def test_a_job_is_told_to_hang_with_the_rank_that_differs_and_is_left_as_it_is(cluster: Cluster) -> None:
    job_id, agents = await two_ranks(cluster)
    await fall_quiet(cluster, job_id, agents)
    job = await until_told(cluster, job_id, agents)
    assert (job["state"], job["generation"], job["hang"]["differs"], job["hang"]["ends"]) == ("running", 1, [1], False)
    assert job["hang"]["message"] == f"no output and no step of any rank for 7 min: {WHAT}"
    (listed,) = (await cluster.client.get(JOBS)).json()["items"]
    assert listed["hang"] == job["hang"] | {"message": listed["hang"]["message"]}
    (event,) = await told(cluster, job_id)
    assert event["type"] == TOLD
    assert event["data"]["ranks"] == {"0": "waits in all_reduce (step in f.py:9)", "1": "is at f.py:24"}
    for _ in range(3):
        await cluster.step()
    assert len(await told(cluster, job_id)) == 1
    assert all(agent.action(job_id) == "run" for agent in agents)


async def test_output_of_one_rank_withdraws_it(cluster: Cluster) -> None:
    job_id, agents = await two_ranks(cluster)
    await fall_quiet(cluster, job_id, agents)
    await until_told(cluster, job_id, agents)
    await agents[0].fall_quiet(job_id, None)
    await cluster.until_seen(lambda: cluster.job(job_id), lambda job: job["hang"] is None)
    assert [event["type"] for event in await told(cluster, job_id)] == [TOLD, WITHDRAWN]


async def test_a_rank_that_never_speaks_is_no_hang_while_another_one_does(cluster: Cluster) -> None:
    """In most scripts only rank 0 says anything."""
    job_id, agents = await two_ranks(cluster, hang_seconds=8)
    await agents[1].fall_quiet(job_id, 1.0)
    for _ in range(5):
        await cluster.step()
    assert [agent.looks for agent in agents] == [[], []]


async def test_ranks_that_compute_are_a_long_epoch(cluster: Cluster) -> None:
    job_id, agents = await two_ranks(cluster)
    agents[0].seen = seen(1, cores=0.9)
    await fall_quiet(cluster, job_id, agents)
    await until_looked_at(cluster, agents, 1)
    for seconds in (CONFIRM_SECONDS, 60.0):
        cluster.ahead += timedelta(seconds=seconds)
        await cluster.hear(*agents)
        for _ in range(3):
            await cluster.step()
    await until_looked_at(cluster, agents, 2)
    assert await told(cluster, job_id) == []


async def test_a_rank_that_has_ended_while_others_wait_for_it_is_named(cluster: Cluster) -> None:
    """Over NCCL nothing breaks when a rank takes fewer steps than the others."""
    job_id, agents = await two_ranks(cluster, hang_seconds=8, max_restarts=0)
    await agents[1].complete(job_id)
    await agents[0].fall_quiet(job_id, cluster.now().timestamp())
    for _ in range(3):
        await cluster.step()
    assert agents[0].looks == []
    cluster.ahead += timedelta(seconds=9)
    await cluster.hear(*agents)
    job = await cluster.until_job(job_id, "failed", end_reason="hang")
    assert "rank 1 has ended while rank 0 waits in all_reduce (step in f.py:9)" in job["failure"]["message"]


async def test_by_its_users_word_it_is_started_again_and_then_fails(cluster: Cluster) -> None:
    job_id, agents = await two_ranks(cluster, hang_seconds=8)
    await fall_quiet(cluster, job_id, agents, ago=9.0)
    job = await cluster.until_job(job_id, "running", generation=2, restarts=1)
    assert job["hang"] is None
    (incident,) = (await cluster.client.get(f"{JOBS}/{job_id}/incidents")).json()
    assert (incident["cause"], incident["action"]) == ("hang", "restarted")
    culprit = incident["culprit"]
    assert (culprit["kind"], culprit["rank"], culprit["node_name"], culprit["where"]) == ("hang", 1, "b", "f.py:24")
    assert culprit["message"].startswith("hung: no output and no step of any rank for ")
    assert culprit["message"].endswith(f" s: {WHAT}; restart 1 of 1")
    await fall_quiet(cluster, job_id, agents, ago=9.0)
    job = await cluster.until_job(job_id, "failed", end_reason="hang")
    assert (job["failure"]["kind"], job["failure"]["rank"], job["failure"]["where"]) == ("hang", 1, "f.py:24")
    assert '  File "/home/ada/f.py", line 24, in <module>' in job["failure"]["traceback"]


async def test_mismatched_calls_of_two_ranks_blame_neither_but_are_told(cluster: Cluster) -> None:
    job_id, agents = await two_ranks(cluster, hang_seconds=8, max_restarts=0)
    for rank, agent in enumerate(agents):
        agent.seen = recorded("order")[rank]
    await fall_quiet(cluster, job_id, agents, ago=9.0)
    job = await cluster.until_job(job_id, "failed", end_reason="hang")
    assert "mismatched calls: rank 0 waits in all_reduce (f.py:46), rank 1 waits in broadcast (f.py:47)" in job["failure"]["message"]


@pytest.mark.slow("goes through the seconds until a node is unreachable")
async def test_what_an_agent_said_before_it_went_away_decides_nothing(cluster: Cluster) -> None:
    job_id, agents = await two_ranks(cluster, hang_seconds=8)
    await agents[1].disconnect(1001)
    await cluster.until_seen(cluster.nodes, lambda nodes: nodes["b"]["state"] == "unreachable")
    await agents[0].fall_quiet(job_id, 1.0)
    for _ in range(5):
        await cluster.step()
    assert (agents[0].looks, (await cluster.job(job_id))["generation"]) == ([], 1)


async def test_stacks_come_when_asked_for_with_the_rank_that_differs(cluster: Cluster) -> None:
    job_id, agents = await two_ranks(cluster)
    with cluster.standing_clock():
        found = (await cluster.client.get(f"{JOBS}/{job_id}/stacks")).json()
        only = (await cluster.client.get(f"{JOBS}/{job_id}/stacks", params={"rank": "1"})).json()
    assert (found["summary"], found["differs"]) == (WHAT, [1])
    first, second = found["ranks"]
    assert (first["rank"], first["node_name"], first["differs"], first["summary"]) == (
        0,
        "a",
        False,
        "waits in all_reduce (step in f.py:9)",
    )
    assert (second["differs"], second["cores"], second["error"]) == (True, 1.0, "")
    (frame,) = second["processes"][0]["threads"][0]["frames"]
    assert frame == {"function": "<module>", "file": "/home/ada/f.py", "line": 24, "own": True}
    assert ([each["rank"] for each in only["ranks"]], only["differs"]) == ([1], [1])
    assert [len(agent.looks) for agent in agents] == [1, 1]  # the second request has joined the first
    assert await told(cluster, job_id) == []


async def test_an_agent_that_does_not_answer_is_told_with_its_rank(cluster: Cluster) -> None:
    job_id, agents = await two_ranks(cluster)
    agents[1].seen = None

    async def look(wait: float = 0.0) -> dict[str, Any]:
        found: dict[str, Any] = (await cluster.client.get(f"{JOBS}/{job_id}/stacks", params={"wait": wait})).json()
        return found

    with cluster.standing_clock():  # each request joins the first one
        await cluster.until_seen(look, lambda found: not found["ranks"][0]["error"])
        found = await look(wait=0.5)
    assert found["ranks"][1]["error"] == "its agent has not answered"
    assert found["summary"] == "rank 0 waits in all_reduce (step in f.py:9), rank 1 has no stack: its agent has not answered"


@pytest.mark.parametrize(
    ("parameters", "said"),
    [({"rank": "7"}, "rank=7: job digits runs with the ranks 0 to 1"), ({"wait": 99}, "wait: must be 25 or less; got 99")],
)
async def test_what_cannot_be_asked_is_refused(cluster: Cluster, parameters: dict[str, Any], said: str) -> None:
    job_id, _ = await two_ranks(cluster)
    answer = await cluster.client.get(f"{JOBS}/{job_id}/stacks", params=parameters)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")
    assert said in answer.json()["detail"]


async def test_a_job_that_does_not_run_has_no_stacks(cluster: Cluster) -> None:
    job_id = await cluster.submit(**SCRIPT)
    answer = await cluster.client.get(f"{JOBS}/{job_id}/stacks")
    assert (answer.status_code, answer.json()["code"]) == (409, "job_not_running")
    assert (await cluster.client.get(f"{JOBS}/nobody/stacks")).status_code == 404


async def test_many_requests_at_once_stop_the_ranks_once(cluster: Cluster) -> None:
    job_id, agents = await two_ranks(cluster)
    with cluster.standing_clock():
        answers = await asyncio.gather(*(cluster.client.get(f"{JOBS}/{job_id}/stacks") for _ in range(5)))
    assert {answer.json()["summary"] for answer in answers} == {WHAT}
    assert [len(agent.looks) for agent in agents] == [1, 1]
