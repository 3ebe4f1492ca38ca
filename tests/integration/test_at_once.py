"""Agents speak while the coordinator decides: nothing they say is lost, and nothing is decided on what they have said is over."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.loops import scheduler
from paceline.api.services.scheduling import job_snapshots
from paceline.api.services.scheduling.job_snapshots import JobSnapshot
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from tests.integration.conftest import POLL_SECONDS, UNTIL_SECONDS, Cluster
from tests.integration.test_close_up import gang_of_three, members

WAITERS = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")


async def until_heard(cluster: Cluster, job_id: str, ends: int) -> None:
    """Without a step of any loop."""
    async with asyncio.timeout(UNTIL_SECONDS):
        while [event["type"] for event in await cluster.events(job_id)].count("rank.exited") < ends:  # noqa: ASYNC110 - agents change it
            await asyncio.sleep(POLL_SECONDS)


async def test_ranks_that_end_one_after_the_other_while_it_is_decided_are_one_incident(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, agents, _ = await gang_of_three(cluster)
    await agents["b"].crash(job_id, 1, kind="signal", message="killed by SIGKILL")
    await until_heard(cluster, job_id, 1)

    async def look_while_another_ends(session: AsyncSession, up_since: datetime | None) -> list[JobSnapshot]:
        seen = await job_snapshots.load(session, up_since)
        monkeypatch.undo()
        await agents["c"].crash(job_id, 2, kind="signal", message="killed by SIGKILL")
        await until_heard(cluster, job_id, 2)
        return seen

    monkeypatch.setattr(scheduler, "load", look_while_another_ends)
    job = await cluster.until_job(job_id, "running", generation=2)
    assert [rank["node_name"] for rank in members(job)] == ["a"]
    (incident,) = (await cluster.client.get(f"/api/v1/training/jobs/{job_id}/incidents")).json()
    assert incident["why"].startswith("rank 1: killed by SIGKILL; rank 0 of 3 continues")


async def waits_for_a_lock(cluster: Cluster) -> None:
    async with asyncio.timeout(UNTIL_SECONDS):
        while True:
            async with cluster.services.control.read() as session:
                if await session.scalar(WAITERS):
                    return
            await asyncio.sleep(POLL_SECONDS)


@pytest.mark.parametrize("settings", ["postgresql"], indirect=True)
async def test_a_report_and_a_change_of_members_wait_for_each_other_in_one_order(cluster: Cluster) -> None:
    job_id, agents, before = await gang_of_three(cluster)
    await agents["b"].crash(job_id, 1, kind="signal")
    await until_heard(cluster, job_id, 1)
    (node_id,) = {rank["node_id"] for rank in before["ranks"] if rank["node_name"] == "c"}
    async with cluster.services.write() as session:  # a report of c: first the node, then its ranks
        await node_rows.get_locked(session, node_id)
        closing_up = asyncio.create_task(scheduler.advance_all(cluster.services, cluster.now()))
        await waits_for_a_lock(cluster)
        (rank,) = await job_rows.open_ranks_of_node(session, node_id)
        rank.step = 9
        await session.flush()
    await asyncio.wait_for(closing_up, UNTIL_SECONDS)
    job = await cluster.until_job(job_id, "running", generation=2)
    assert [(rank["node_name"], rank["step"]) for rank in members(job)] == [("a", 0), ("c", 9)]
