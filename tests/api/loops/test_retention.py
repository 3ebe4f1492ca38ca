"""Retention deletes what a job's policy does not keep, and never the last checkpoint from before its loss was NaN."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import httpx
import pytest
from sqlalchemy import text

from paceline.api.core.context import Services
from paceline.api.loops import retention
from paceline.cluster.states import CheckpointState
from paceline.db.models.jobs import GenerationRow
from paceline.db.repositories import checkpoints as checkpoint_rows
from paceline.db.repositories import nodes as node_rows
from tests import factories
from tests.waiting import POLL_SECONDS

WAITERS = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
UNTIL_SECONDS = 30.0


async def test_the_last_checkpoint_from_before_a_nan_stays_while_a_new_generation_goes_on_with_it(
    services: Services, client: httpx.AsyncClient
) -> None:
    """The ranks have been started again and have told no loss yet."""
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_running_job(session, node, generation=4, progress={"not_finite": {"step": 1001, "generation": 3}})
        (await session.get_one(GenerationRow, (job.id, 4))).start_step = 1400
        session.add_all(factories.checkpoint(job, node, step=step) for step in (800, 900, 1200, 1300, 1400))
    await retention.step_once(services, services.now())
    async with services.control.read() as session:
        kept = [row.step for row in await checkpoint_rows.present_of_job(session, job.id) if row.state is CheckpointState.COMMITTED]
    assert sorted(kept) == [900, 1200, 1300, 1400]
    listed = (await client.get(f"/api/v1/checkpoints/jobs/{job.id}")).json()["items"]
    assert [each["step"] for each in listed if each["deleted_next"] and each["state"] == "committed"] == [1200]


async def waits_for_a_lock(services: Services) -> None:
    async with asyncio.timeout(UNTIL_SECONDS):
        while True:
            async with services.control.read() as session:
                if await session.scalar(WAITERS):
                    return
            await asyncio.sleep(POLL_SECONDS)


@pytest.mark.parametrize("settings", ["postgresql"], indirect=True)
async def test_a_checkpoint_that_is_restored_while_retention_waits_for_it_stays(services: Services) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        spec = factories.job_spec(checkpoint={"keep_last": 1, "keep_best": 0})
        job = await factories.create_job(session, spec=spec, generation=1)
        rows = [factories.checkpoint(job, node, step=step) for step in (10, 20, 30)]
        session.add_all(rows)
    async with services.write() as session:  # a restore of the checkpoint of step 10
        restored = await checkpoint_rows.get_locked(session, rows[0].id)
        assert restored is not None
        deleting = asyncio.create_task(retention.step_once(services, services.now()))
        await waits_for_a_lock(services)
        await factories.create_job(session, restored_from=restored.id)
    await asyncio.wait_for(deleting, UNTIL_SECONDS)
    async with services.control.read() as session:
        states = {row.step: row.state for row in await checkpoint_rows.present_of_job(session, job.id)}
    assert states == {10: CheckpointState.COMMITTED, 20: CheckpointState.DELETING, 30: CheckpointState.COMMITTED}


async def test_a_deletion_in_an_object_store_that_its_node_does_not_do_goes_to_the_next_one(services: Services) -> None:
    """The node had no credentials for the store: all that it had saved stayed there for as long as it lived, though others had them."""
    async with services.write() as session:
        nodes = [(await factories.create_node(session, name=name))[0] for name in ("node-a", "node-b")]
        job = await factories.create_job(session, generation=1)
        first, second = sorted(nodes, key=lambda node: node.id)
        stored = factories.checkpoint(job, first, step=10, state=CheckpointState.DELETING, directory="s3://bucket/job/step-10.g1")
        in_folder = factories.checkpoint(job, first, step=20, state=CheckpointState.DELETING)
        session.add_all([stored, in_folder])
    keeps, now = retention.Retention(services), services.now()
    holders = []
    for minutes in (0, 4, 6, 9, 12):
        await keeps.step_once(now + timedelta(minutes=minutes))
        async with services.control.read() as session:
            rows = {row.id: row.node_id for row in await checkpoint_rows.being_deleted(session)}
        assert rows[in_folder.id] == first.id
        holders.append(rows[stored.id])
    assert holders == [first.id, first.id, second.id, second.id, first.id]


@pytest.mark.parametrize("settings", ["postgresql"], indirect=True)
async def test_nodes_that_get_deletions_are_locked_in_the_order_of_their_ids(services: Services) -> None:
    """As by everything that locks several: two that wait for each other would end with an error in one of them."""
    async with services.write() as session:
        nodes = [(await factories.create_node(session, name=name))[0] for name in ("node-a", "node-b", "node-c")]
        job = await factories.create_job(session, generation=1)
        first, second, third = sorted(nodes, key=lambda node: node.id)
        for number, node in enumerate((first, third)):  # the following ones are the second and the first
            url = f"s3://bucket/job/step-{number}.g1"
            session.add(factories.checkpoint(job, node, step=number, state=CheckpointState.DELETING, directory=url))
    keeps = retention.Retention(services)
    await keeps.step_once(services.now())
    async with services.write() as session:
        await node_rows.get_locked(session, first.id)
        moving = asyncio.create_task(keeps.step_once(services.now() + retention.TURN))
        await waits_for_a_lock(services)
        await asyncio.wait_for(node_rows.get_locked(session, second.id), UNTIL_SECONDS)
    await asyncio.wait_for(moving, UNTIL_SECONDS)
    async with services.control.read() as session:
        assert [row.node_id for row in await checkpoint_rows.being_deleted(session)] == [second.id, first.id]


@pytest.mark.parametrize("settings", ["postgresql"], indirect=True)
async def test_nodes_of_superfluous_checkpoints_are_locked_in_the_order_of_their_ids(services: Services) -> None:
    async with services.write() as session:
        nodes = [(await factories.create_node(session, name=name))[0] for name in ("node-a", "node-b")]
        first, second = sorted(nodes, key=lambda node: node.id)
        spec = factories.job_spec(checkpoint={"keep_last": 1, "keep_best": 0})
        job = await factories.create_job(session, spec=spec, generation=1)
        session.add_all(factories.checkpoint(job, node, step=step) for step, node in ((10, second), (20, first), (30, second), (40, first)))
    async with services.write() as session:
        await node_rows.get_locked(session, first.id)
        deleting = asyncio.create_task(retention.step_once(services, services.now()))
        await waits_for_a_lock(services)
        await asyncio.wait_for(node_rows.get_locked(session, second.id), UNTIL_SECONDS)
    await asyncio.wait_for(deleting, UNTIL_SECONDS)
    async with services.control.read() as session:
        assert {row.step for row in await checkpoint_rows.being_deleted(session)} == {10, 20, 30}
