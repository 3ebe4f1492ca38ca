"""What trials wait for before they have a job."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sqlalchemy import update

from paceline.api.core.context import Services
from paceline.cluster.states import JobState, NodeState
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import nodes as node_rows
from tests import factories
from tests.api.test_experiments import JOB, Found, end, post, read, set_jobs, states, step, trials


async def job_states(client: httpx.AsyncClient, experiment: Found) -> list[str | None]:
    return [each["job"]["state"] if each["job"] else None for each in await trials(client, experiment)]


async def test_trials_whose_plan_is_to_be_chosen_wait_for_nodes_where_there_is_none(client: httpx.AsyncClient, services: Services) -> None:
    experiment = await post(client, grid={"parallelism.strategy": ["auto", "ddp"]})
    for _ in range(3):
        await step(services)
    assert await job_states(client, experiment) == [None, "queued"]
    await end(services, "lr-1")
    await step(services)
    found = await read(client, experiment)
    assert (found["state"], found["waits_for"]["code"]) == ("running", "no_nodes")
    async with services.write() as session:
        node, _ = await factories.create_node(session, state=NodeState.JOINING, slots=0)
    for _ in range(3):
        await step(services)
    assert await job_states(client, experiment) == [None, "completed"], "the node has joined, and not said hello yet"
    assert (await read(client, experiment))["waits_for"]["code"] == "no_nodes"
    async with services.write() as session:
        await session.execute(update(NodeRow).where(NodeRow.id == node.id).values(state=NodeState.READY, slots=1))
    await step(services)
    assert await job_states(client, experiment) == [None, "completed"], "the node has not told how much memory it has"
    async with services.write() as session:
        (row,) = await node_rows.present(session)
        row.inventory = {"memory_bytes": 1 << 34}
    await step(services)
    assert await job_states(client, experiment) == ["queued", "completed"]


async def test_a_trial_whose_job_is_queued_waits(client: httpx.AsyncClient, services: Services) -> None:
    """It was counted as running: three on two slots, and one where there was no node at all."""
    experiment = await post(client)
    await step(services)
    counts = (await read(client, experiment))["trials"]
    assert (counts["running"], counts["waiting"], await states(client, experiment)) == (0, 2, ["waiting", "waiting"])
    await set_jobs(services, "lr-0", state=JobState.STARTING)
    counts = (await read(client, experiment))["trials"]
    assert (counts["running"], counts["waiting"], await states(client, experiment)) == (1, 1, ["running", "waiting"])


async def test_a_trial_that_no_node_would_hold_waits_for_the_one_that_joins(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        await factories.create_node(session, slots=1, inventory={"memory_bytes": 1 << 34})
        await factories.create_node(session, name="node-b", state=NodeState.JOINING, slots=0)
    job = JOB | {"resources": {"slots_per_node": 2}}
    experiment = await post(client, job=job, grid={"parallelism.strategy": ["auto"]})
    for _ in range(3):
        await step(services)
    assert await states(client, experiment) == ["waiting"]
    waits_for = (await read(client, experiment))["waits_for"]
    assert (waits_for["code"], "node-b is joining" in waits_for["text"]) == ("nodes_joining", True)


@pytest.mark.parametrize(
    "axes",
    [
        {"grid": {}, "zip": [{"parallelism.strategy": ["auto"], "optimizer.lr": [0.1]}]},
        {"grid": {}, "search": {"trials": 1, "parameters": {"parallelism.strategy": ["auto"]}}},
    ],
    ids=["zip", "search"],
)
async def test_wherever_the_strategy_is_given_it_is_told_that_there_is_no_node(
    client: httpx.AsyncClient, services: Services, axes: dict[str, Any]
) -> None:
    experiment = await post(client, **axes)
    for _ in range(2):
        await step(services)
    assert (await read(client, experiment))["waits_for"]["code"] == "no_nodes"
