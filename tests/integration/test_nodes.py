"""Nodes as their simulated agents come, fall silent, return, are refused and leave, on the real protocol."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from paceline.api.websocket import agents
from paceline.api.websocket.agents import AgentChannel
from paceline.db.errors import DatabaseAwayError
from paceline.db.session import Database
from tests.asgi_socket import AsgiSocket, SocketClosedError
from tests.integration.conftest import JOBS, Cluster
from tests.simulated_agent import SimulatedAgent
from tests.transactions import committed
from tests.waiting import until


async def test_a_node_that_falls_silent_is_unreachable_then_lost_and_its_job_moves(cluster: Cluster) -> None:
    a, b = await cluster.add_agent("a", slots=1), await cluster.add_agent("b", slots=1)
    job_id = await cluster.submit()
    job = await cluster.until_job(job_id, "running")
    silent, other = (a, b) if job["ranks"][0]["node_name"] == "a" else (b, a)
    silent_name, other_name = ("a", "b") if silent is a else ("b", "a")
    await cluster.elapse(11, other)
    assert (await cluster.nodes())[silent_name]["state"] == "unreachable"
    assert (await cluster.job(job_id))["state"] == "running"
    await cluster.elapse(46, other)
    job = await cluster.until_job(job_id, "running", generation=2)
    assert job["ranks"][0]["node_name"] == other_name
    assert (await cluster.nodes())[silent_name]["state"] == "lost"
    reasons = [
        event["data"]["reason"]
        for event in await cluster.events(job_id)
        if event["type"] == "job.state" and event["data"]["to"] == "recovering"
    ]
    assert reasons == ["node_lost"]


async def test_a_job_says_that_its_node_is_silent_before_the_node_is_lost(cluster: Cluster) -> None:
    """Nothing on the job's page told of it until its ranks were given up."""
    a, b = await cluster.add_agent("a", slots=1), await cluster.add_agent("b", slots=1)
    job_id = await cluster.submit(resources={"nodes": 2}, parallelism={"strategy": "ddp"})
    job = await cluster.until_job(job_id, "running")
    assert job["silent_nodes"] == []
    await cluster.elapse(20, a)
    job = await cluster.job(job_id)
    (listed,) = (await cluster.client.get(JOBS)).json()["items"]
    for shown in (job, listed):
        (silent,) = shown["silent_nodes"]
        assert silent["node_name"] == "b"
        assert re.fullmatch(r"node b \(rank [01]\) has not been heard of for \d\d s; .*given up.*", silent["message"])
    await b.heartbeat()
    await cluster.until_node("b", lambda node: bool(node["state"] == "ready"))
    assert (await cluster.job(job_id))["silent_nodes"] == []


async def test_a_lost_node_that_comes_back_stops_what_it_still_runs(cluster: Cluster) -> None:
    a = await cluster.add_agent("a", slots=1)
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    await cluster.elapse(11)
    await cluster.elapse(46)
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


async def test_nothing_is_placed_on_a_node_with_an_agent_that_was_told_to_end(cluster: Cluster) -> None:
    """It was ready until it had been silent for long: the next job was placed there, and failed."""
    agent = await cluster.add_agent("a")
    await agent.heartbeat()
    await agent.leave()
    await cluster.until_node("a", lambda node: node["state"] == "unreachable")
    await agent.disconnect()
    job_id = await cluster.submit()
    await cluster.step()
    assert (await cluster.job(job_id))["state"] == "queued"
    back = SimulatedAgent(cluster.app, agent.credential, boot_id="boot-2")
    cluster.agents.append(back)
    await back.connect()
    await cluster.until_job(job_id, "running")


async def test_a_job_on_an_agent_that_was_told_to_end_is_started_again_and_has_used_no_restart(cluster: Cluster) -> None:
    """It was a crash, and failed a job with max_restarts 0."""
    a, b = await cluster.add_agent("a"), await cluster.add_agent("b")
    job_id = await cluster.submit(fault_tolerance={"max_restarts": 0, "recovery": "restart"})
    await cluster.until_job(job_id, "running")
    first = a if a.ranks else b
    await first.leave()
    job = await cluster.until_job(job_id, "running", generation=2)
    assert job["restarts"] == 0
    (incident,) = (await cluster.client.get(f"/api/v1/training/jobs/{job_id}/incidents")).json()
    assert (
        incident["why"] == "the agent of rank 0 was stopped, and the rank with it; it is started again, which does not count as a restart"
    )


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


@pytest.mark.parametrize("slots", [-1, 10**9])
async def test_a_node_that_claims_a_billion_slots_is_refused(cluster: Cluster, slots: int) -> None:
    """Each slot is a number in memory at every look at the nodes."""
    agent = await cluster.add_agent()
    await agent.disconnect()
    stranger = SimulatedAgent(cluster.app, agent.credential, slots=slots)
    await stranger.connect()
    await cluster.until(lambda: stranger.closed_with is not None, "it is refused")
    assert stranger.refused is not None
    assert (stranger.refused.code, stranger.refused.final) == ("too_many_slots", True)
    assert f"slots={slots} is not between 0 and 1024" in stranger.refused.message
    assert len((await cluster.nodes())["a"]["slots"]) == 2


async def test_an_agent_of_another_protocol_is_refused_for_good(cluster: Cluster) -> None:
    known = await cluster.add_agent("a")
    stranger = SimulatedAgent(cluster.app, known.credential, protocol=99)
    cluster.agents.append(stranger)
    await stranger.connect()
    await cluster.until(lambda: stranger.closed_with is not None, "it is refused")
    assert stranger.refused is not None
    assert (stranger.refused.code, stranger.refused.final) == ("protocol_version", True)
    assert known.closed_with is None


async def test_no_credential_no_channel(cluster: Cluster, admin_key: str) -> None:
    for key in ("pn_wrong", admin_key):
        socket = AsgiSocket(cluster.app, "/api/v1/agents/channel", {"Authorization": f"Bearer {key}"})
        with pytest.raises(SocketClosedError) as closed:
            await socket.open()
        assert closed.value.code == 4401


async def test_an_unreadable_message_ends_the_channel(cluster: Cluster) -> None:
    agent = await cluster.add_agent("a")
    assert agent._socket is not None
    await agent._socket.send('{"type": "nonsense"}')
    await cluster.until(lambda: agent.closed_with is not None, "it is closed")
    assert agent.closed_with == 4400


async def test_an_agent_that_never_says_hello_is_sent_away(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    known = await cluster.add_agent("a")
    monkeypatch.setattr(agents, "HELLO_SECONDS", 0.05)
    silent = AsgiSocket(cluster.app, "/api/v1/agents/channel", {"Authorization": f"Bearer {known.credential}"})
    await silent.open()
    with pytest.raises(SocketClosedError, match="no hello within") as closed:
        await silent.receive()
    assert closed.value.code == 4400
    assert known.closed_with is None


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


async def test_a_heartbeat_shows_on_the_node(cluster: Cluster) -> None:
    a = await cluster.add_agent("a")
    await a.heartbeat()
    node: dict[str, Any] = await cluster.until_node("a", lambda node: node["host"] is not None)
    assert (node["host"]["cpu_percent"], node["backlog_records"], node["gpu_note"]) == (50.0, 7, "no GPU")
    assert abs(node["clock_skew_seconds"]) > 0
    status = (await cluster.client.get("/api/v1/cluster/gpu-status")).json()
    assert status == {"gpus": [], "nodes_without_gpu": ["a"]}


async def test_a_busy_database_closes_an_agents_channel_softly(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    agent = await cluster.add_agent()
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")

    @asynccontextmanager
    async def busy(_: Database, *, request: bool = False) -> AsyncIterator[None]:
        raise DatabaseAwayError("it is away")
        yield

    async def note_closed(channel: AgentChannel) -> None:
        said.append(channel.node_id)

    with monkeypatch.context() as away:
        away.setattr(Database, "write", busy)
        away.setattr(AgentChannel, "note_closed", note_closed)
        await agent.step(job_id, 7)
        await until(lambda: agent.closed_with is not None, "the end of the channel", seconds=20)
    assert agent.closed_with == 1013, "try again later"
    assert said == [], "a farewell would wait for the same database"


async def test_an_observation_that_says_nothing_new_costs_no_transaction(cluster: Cluster) -> None:
    a = await cluster.add_agent("a")
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    await a.observe()
    await cluster.services.last_uses.flush()  # else this is a commit more, now and then
    with cluster.standing_clock(), committed(cluster.services.control) as commits:  # each second is one of the test's own
        for _ in range(20):
            await a.observe()
        await a.heartbeat()
        await cluster.until_node("a", lambda node: node["host"] is not None)
    assert commits.count <= 3, "the first one and the heartbeat"
