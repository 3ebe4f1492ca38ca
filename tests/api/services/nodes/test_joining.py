"""A launch's token is exchanged for a credential: once more, too, where the answer was lost on its way."""

from __future__ import annotations

import shlex

import httpx

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.services.lifecycle import node_lifecycle
from paceline.cluster.protocol import JOIN_PATH
from paceline.cluster.states import NodeState
from paceline.credentials import hash_secret
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import nodes as node_rows

NODES, POOLS = "/api/v1/cluster/nodes", "/api/v1/cluster/pools"


async def node_of(services: Services, node_id: str) -> NodeRow:
    async with services.control.read() as session:
        node = await node_rows.get(session, node_id)
    assert node is not None
    return node


async def test_an_agent_that_did_not_hear_that_it_has_joined_joins_as_the_same_node(client: httpx.AsyncClient, services: Services) -> None:
    """Its name was taken by itself: it gave up, and the name and the pool's place stayed taken for an hour."""
    await client.put(f"{POOLS}/lab", json={"name": "lab", "provider": {"type": "manual"}, "slots": 2})
    (launch,) = (await client.post(NODES, json={"pool": "lab"})).json()["launches"]
    words = shlex.split(launch["command"])
    body = {"token": words[words.index("--token") + 1], "name": launch["name"]}
    lost, heard = [(await client.post(JOIN_PATH, json=body)).json() for _ in range(2)]
    assert heard["node_id"] == lost["node_id"]
    node = await node_of(services, heard["node_id"])
    assert (node.state, node.credential_hash) == (NodeState.JOINING, hash_secret(heard["credential"]))
    async with services.write() as session:
        locked = await node_rows.get_locked(session, node.id)
        assert locked is not None
        await node_lifecycle.move(session, locked, NodeState.READY, SYSTEM, "its agent has connected", services.now())
    refused = await client.post(JOIN_PATH, json=body)
    assert (refused.status_code, refused.json()["code"]) == (409, "name_taken")
    assert (await node_of(services, node.id)).credential_hash == node.credential_hash
