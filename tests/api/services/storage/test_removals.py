"""A request to delete what a job has recorded, beside other changes of the same rows."""

from __future__ import annotations

import asyncio

import pytest

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.services.storage import removals
from paceline.cluster.states import JobState
from paceline.db.repositories import checkpoints as checkpoint_rows
from paceline.db.repositories import nodes as node_rows
from tests import factories
from tests.api.loops.test_retention import UNTIL_SECONDS, waits_for_a_lock


@pytest.mark.parametrize("settings", ["postgresql"], indirect=True)
async def test_nodes_of_checkpoints_are_locked_in_the_order_of_their_ids(services: Services) -> None:
    """As by everything that locks several: two that wait for each other would end with an error in one of them."""
    async with services.write() as session:
        nodes = [(await factories.create_node(session, name=name))[0] for name in ("node-a", "node-b")]
        first, second = sorted(nodes, key=lambda node: node.id)
        job = await factories.create_job(session, generation=1, state=JobState.COMPLETED)
        session.add_all(factories.checkpoint(job, node, step=step) for step, node in ((10, second), (20, first), (30, second)))

    async def ask() -> None:
        async with services.write() as session:
            await removals.ask(session, job.id, SYSTEM, services.now(), with_checkpoints=True)

    async with services.write() as session:
        await node_rows.get_locked(session, first.id)
        asking = asyncio.create_task(ask())
        await waits_for_a_lock(services)
        await asyncio.wait_for(node_rows.get_locked(session, second.id), UNTIL_SECONDS)
    await asyncio.wait_for(asking, UNTIL_SECONDS)
    async with services.control.read() as session:
        assert [row.step for row in await checkpoint_rows.being_deleted(session)] == [10, 20, 30]
