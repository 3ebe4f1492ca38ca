"""What trials wait for before they have a job."""

from __future__ import annotations

import httpx

from paceline.api.core.context import Services
from paceline.db.repositories import nodes as node_rows
from tests import factories
from tests.api.test_experiments import end, post, read, states, step


async def test_trials_whose_plan_is_to_be_chosen_wait_for_nodes_where_there_is_none(client: httpx.AsyncClient, services: Services) -> None:
    experiment = await post(client, grid={"parallelism.strategy": ["auto", "ddp"]})
    for _ in range(3):
        await step(services)
    assert await states(client, experiment) == ["waiting", "running"], "the other one waits in the queue"
    await end(services, "lr-1")
    await step(services)
    found = await read(client, experiment)
    assert (found["state"], found["waits_for"]["code"]) == ("running", "no_nodes")
    async with services.write() as session:
        await factories.create_node(session, slots=1)
    await step(services)
    assert await states(client, experiment) == ["waiting", "completed"], "the node has not told how much memory it has"
    async with services.write() as session:
        (row,) = await node_rows.present(session)
        row.inventory = {"memory_bytes": 1 << 34}
    await step(services)
    assert await states(client, experiment) == ["running", "completed"]
