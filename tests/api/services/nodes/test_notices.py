"""Nodes that drain for a notice: those whose machine comes back keep their place, whenever it went."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from paceline.api.core.context import Services
from paceline.api.loops.nodes import NodeWatch
from paceline.api.services.nodes import notices, presence
from paceline.cluster.protocol import PROTOCOL_VERSION, AgentHello, Inventory
from paceline.cluster.states import NodeState
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import nodes as node_rows
from tests import factories

LATER = factories.START + timedelta(seconds=3)
INVENTORY = Inventory(slots=2, device="cpu", cpu_count=2, memory_bytes=1 << 30, hostname="host", platform="test")


def notice(*, returns: bool = True, before: NodeState = NodeState.READY) -> dict[str, Any]:
    """The inventory of a node that drains for a notice."""
    return {notices.KEY: {"ends_at": LATER.timestamp(), "reason": "its time limit ends", "returns": returns, "before": before.value}}


async def read(services: Services, node_id: str) -> NodeRow:
    async with services.control.read() as session:
        return await session.get_one(NodeRow, node_id)


async def say_hello(services: Services, node_id: str, boot_id: str) -> NodeRow:
    hello = AgentHello(
        protocol=PROTOCOL_VERSION, agent_version="0", boot_id=boot_id, inventory=INVENTORY, address="127.0.0.1", store_port=1
    )
    async with services.write() as session:
        await node_rows.get_locked(session, node_id)
        await presence.hello(session, node_id, "channel", hello, LATER)
    return await read(services, node_id)


async def draining(services: Services, inventory: dict[str, Any], **columns: Any) -> str:
    """A node that drains, or did when it was last heard from. Its agent is `boot-1`."""
    async with services.write() as session:
        defaults: dict[str, Any] = {"state": NodeState.DRAINING, "boot_id": "boot-1", "inventory": inventory}
        return (await factories.create_node(session, **(defaults | columns)))[0].id


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"leaving": True},  # its agent was cut off before it could leave, and is back before that was seen
        {"state": NodeState.UNREACHABLE, "state_before_unreachable": NodeState.DRAINING},
    ],
    ids=["draining", "told to leave", "unreachable"],
)
@pytest.mark.parametrize("before", [NodeState.READY, NodeState.CORDONED])
async def test_a_node_whose_machine_is_back_drains_no_more(services: Services, columns: dict[str, Any], before: NodeState) -> None:
    """Its notice was forgotten, and the node drained on and was removed."""
    node_id = await draining(services, notice(before=before), **columns)
    again = await say_hello(services, node_id, "boot-1")
    assert (again.state, notices.state_on_return(again)) == (NodeState.DRAINING, before), "the same agent has its notice yet"
    back = await say_hello(services, node_id, "boot-2")
    assert (back.state, back.state_before_unreachable, back.leaving, notices.notice_of(back)) == (before, None, False, None)


@pytest.mark.parametrize("inventory", [{}, notice(returns=False)], ids=["by a person", "for good"])
async def test_a_node_that_is_removed_drains_on_though_its_agent_is_started_anew(services: Services, inventory: dict[str, Any]) -> None:
    node_id = await draining(services, inventory)
    assert (await say_hello(services, node_id, "boot-2")).state is NodeState.DRAINING


@pytest.mark.parametrize(
    ("inventory", "state", "before"),
    [
        (notice(), NodeState.LOST, NodeState.READY),
        (notice(before=NodeState.CORDONED), NodeState.LOST, NodeState.CORDONED),
        (notice(returns=False), NodeState.GONE, NodeState.DRAINING),
        ({}, NodeState.GONE, NodeState.DRAINING),
    ],
    ids=["it returns", "it returns cordoned", "for good", "by a person"],
)
async def test_of_the_nodes_that_are_lost_while_they_drain_those_whose_machine_comes_back_are_kept(
    services: Services, inventory: dict[str, Any], state: NodeState, before: NodeState
) -> None:
    node_id = await draining(services, inventory, state=NodeState.UNREACHABLE, state_before_unreachable=NodeState.DRAINING)
    watch = NodeWatch(services)
    for seconds in range(0, 62, 2):
        await watch.step_once(LATER + timedelta(seconds=seconds))
    node = await read(services, node_id)
    assert (node.state, node.state_before_unreachable) == (state, before)
