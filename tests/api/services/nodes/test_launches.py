"""What is asked of a pool: the address that its nodes are told, and the commands that people run."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import replace
from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.services.nodes import launches, scaling
from paceline.cluster.autoscaling.decisions import LaunchNodes
from paceline.db.repositories import provisioning
from tests.api.loops.test_retention import UNTIL_SECONDS, waits_for_a_lock
from tests.conftest import BASE_URL

NODES, POOLS = "/api/v1/cluster/nodes", "/api/v1/cluster/pools"
POOL: dict[str, Any] = {"name": "lab", "provider": {"type": "ssh", "hosts": ["gpu1", "gpu2", "gpu3"]}, "slots": 2}
OPEN = "https://paceline.lab"


async def apply(client: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    answer = await client.put(f"{POOLS}/lab", json=POOL | changes)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def server_of_next_node(services: Services, public_url: str) -> str:
    """The address that the pool's next node is told by a coordinator with this public URL."""
    started_anew = replace(services, settings=services.settings.model_copy(update={"public_url": public_url}))
    await scaling.carry_out(started_anew, [LaunchNodes("lab", 1, "a job waits")], [], services.now())
    async with services.control.read() as session:
        return max(await provisioning.open_of_pool(session, "lab"), key=lambda launch: launch.name).server


async def test_a_pool_without_a_server_follows_the_public_url(client: httpx.AsyncClient, services: Services) -> None:
    """It kept the loopback address under which it was sent: after `paceline up --host ADDRESS`, too, none of its nodes could join."""
    assert (await apply(client))["server"] == BASE_URL
    assert await server_of_next_node(services, "") == BASE_URL
    assert await server_of_next_node(services, OPEN) == OPEN
    await apply(client, server=BASE_URL, max_nodes=3)  # as the dashboard sends back what it was shown
    assert await server_of_next_node(services, OPEN) == OPEN


async def test_a_pool_with_a_server_of_its_own_keeps_it(client: httpx.AsyncClient, services: Services) -> None:
    await apply(client)
    await apply(client, server="http://10.0.0.1:8000")
    assert await server_of_next_node(services, OPEN) == "http://10.0.0.1:8000"


async def test_a_printed_command_can_be_typed_whatever_its_labels_are(client: httpx.AsyncClient) -> None:
    """`site: rack 3` was two words to the shell, and what came behind a `;` a command of its own."""
    labels = {"site": "rack 3; echo hi", "owner": "o'neill"}
    await apply(client, provider={"type": "manual"}, labels=labels)
    answer = await client.post(NODES, json={"pool": "lab"})
    assert answer.status_code == 201, answer.text
    (launch,) = answer.json()["launches"]
    words = shlex.split(launch["command"])
    assert words[:4] == ["paceline", "worker", "--server", BASE_URL]
    given = [words[at + 1] for at, word in enumerate(words) if word == "--label"]
    assert given == ["owner=o'neill", "pool=lab", "site=rack 3; echo hi"]
    assert words[words.index("--slots") + 1] == "2"


async def test_a_host_that_is_asked_for_again_says_which_node_is_on_its_way(client: httpx.AsyncClient) -> None:
    """After an unknown host key `nodes add --ssh HOST --host-key ...` was refused, as long as the first try lasted, with no word of it."""
    body = {"provider": {"type": "ssh", "hosts": ["gpu1"]}}
    assert (await client.post(NODES, json=body)).status_code == 201
    refused = await client.post(NODES, json=body)
    assert (refused.status_code, refused.json()["code"]) == (409, "pool_full")
    assert "There, or on their way: gpu1; " in refused.json()["detail"]
    assert "`paceline nodes cancel NAME`" in refused.json()["detail"]


@pytest.mark.parametrize("settings", ["postgresql"], indirect=True)
async def test_a_pool_is_not_deleted_while_a_node_of_it_is_asked_for(client: httpx.AsyncClient, services: Services) -> None:
    """The node joined a pool that was not there any more: nothing drained it, and nobody was told of it."""
    await apply(client)
    async with services.write() as session:
        await launches.request_of_pool(session, "lab", 1, "", SYSTEM, "a job waits", services.now())
        deleting = asyncio.create_task(client.delete(f"{POOLS}/lab"))
        await waits_for_a_lock(services)
    answer = await asyncio.wait_for(deleting, UNTIL_SECONDS)
    assert (answer.status_code, answer.json()["code"]) == (409, "pool_in_use")
