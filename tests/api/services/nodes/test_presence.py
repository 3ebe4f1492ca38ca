"""What a thousand idle nodes may cost: heartbeats in one transaction, nothing for what is known, and no wait for anybody."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec
import pytest
from sqlalchemy import update

from paceline.api.core import bus
from paceline.api.core.context import Services
from paceline.api.loops.nodes import NodeWatch
from paceline.api.services.nodes.presence import Heartbeats
from paceline.api.services.scheduling.assignment_watch import AssignmentWatch
from paceline.cluster.agent.vitals import UNKNOWN_HOST
from paceline.cluster.protocol import Heartbeat, HostSample
from paceline.cluster.states import NodeState
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import nodes as node_rows
from tests import factories
from tests.transactions import committed_here

HOST = HostSample(
    cpu_percent=50.0,
    memory_used_bytes=1,
    memory_total_bytes=2,
    disk_used_bytes=1,
    disk_total_bytes=2,
    network_sent_bytes_per_second=0.0,
    network_received_bytes_per_second=0.0,
    load_1m=0.5,
)
LATER = factories.START + timedelta(seconds=3)
#: Far more than a write takes, far less than a lock is held below.
SOON_SECONDS = 5.0


def beat(backlog: int = 0, sent_at: datetime = LATER) -> Heartbeat:
    """A heartbeat of a node whose clock is a second fast."""
    return Heartbeat(time=sent_at.timestamp() + 1, host=HOST, gpu_error="no GPU", backlog_records=backlog)


async def create(services: Services, *states: NodeState) -> list[str]:
    async with services.write() as session:
        return [(await factories.create_node(session, name=f"n{n}", state=state))[0].id for n, state in enumerate(states)]


async def rows(services: Services, node_ids: list[str]) -> list[NodeRow]:
    async with services.control.read() as session:
        return [await session.get_one(NodeRow, node_id) for node_id in node_ids]


async def test_heartbeats_of_many_nodes_are_one_transaction(services: Services) -> None:
    node_ids = await create(services, NodeState.READY, NodeState.CORDONED, NodeState.READY)
    heartbeats = Heartbeats(services)
    for node_id in node_ids:
        heartbeats.note(node_id, beat(backlog=1, sent_at=factories.START), factories.START)
        heartbeats.note(node_id, beat(backlog=2), LATER)
    with committed_here(services.control) as commits:
        await heartbeats.flush()
        await heartbeats.flush()
    assert commits.count == 1
    for node in await rows(services, node_ids):
        assert (node.heartbeat_at, node.backlog, node.clock_skew) == (LATER, 2, 1.0)
        assert node.last_sample is not None
        assert (node.last_sample["host"]["cpu_percent"], node.last_sample["gpu_error"]) == (50.0, "no GPU")


async def test_a_machine_that_its_agent_could_not_read_has_no_readings_in_place_of_zeros(services: Services) -> None:
    (node_id,) = await create(services, NodeState.READY)
    heartbeats = Heartbeats(services)
    heartbeats.note(node_id, msgspec.structs.replace(beat(), host=UNKNOWN_HOST), LATER)
    await heartbeats.flush()
    (node,) = await rows(services, [node_id])
    assert node.last_sample is not None
    assert node.last_sample["host"] is None


async def test_heartbeats_that_are_held_up_do_not_look_like_a_slow_clock(services: Services) -> None:
    (node_id,) = await create(services, NodeState.READY)
    heartbeats = Heartbeats(services)
    for delay in (0.01, 0.9, 1.4):
        heartbeats.note(node_id, beat(), LATER + timedelta(seconds=delay))
    await heartbeats.flush()
    (node,) = await rows(services, [node_id])
    assert node.clock_skew == pytest.approx(0.99)


async def test_a_heartbeat_brings_a_silent_node_back_and_no_gone_one(services: Services) -> None:
    node_ids = await create(services, NodeState.UNREACHABLE, NodeState.GONE)
    heartbeats = Heartbeats(services)
    for node_id in node_ids:
        heartbeats.note(node_id, beat(), LATER)
    await heartbeats.flush()
    back, gone = await rows(services, node_ids)
    assert (back.state, back.heartbeat_at) == (NodeState.READY, LATER)
    assert (gone.state, gone.heartbeat_at) == (NodeState.GONE, factories.START)


async def test_a_heartbeat_that_is_being_written_does_not_bring_back_a_node_that_leaves(services: Services) -> None:
    """For ten seconds jobs were placed on it then."""
    (node_id,) = await create(services, NodeState.UNREACHABLE)
    heartbeats = Heartbeats(services)
    heartbeats.note(node_id, beat(), LATER)
    writing = asyncio.create_task(heartbeats.flush())
    await asyncio.sleep(0)
    heartbeats.forget(node_id)
    await writing
    assert [node.state for node in await rows(services, [node_id])] == [NodeState.UNREACHABLE]
    heartbeats.note(node_id, beat(), LATER)
    await heartbeats.flush()
    assert [node.state for node in await rows(services, [node_id])] == [NodeState.READY]


async def test_a_heartbeat_that_could_not_be_written_is_tried_again(services: Services) -> None:
    (node_id,) = await create(services, NodeState.READY)
    heartbeats = Heartbeats(services)
    heartbeats.note(node_id, beat(), LATER)
    stuck = asyncio.create_task(heartbeats.flush())
    await asyncio.sleep(0)
    stuck.cancel()
    await asyncio.gather(stuck, return_exceptions=True)
    await heartbeats.flush()
    assert [node.heartbeat_at for node in await rows(services, [node_id])] == [LATER]


async def test_a_heartbeat_that_no_database_takes_makes_no_other_node_look_silent(services: Services) -> None:
    liar, *others = await create(services, NodeState.READY, NodeState.READY, NodeState.READY)
    heartbeats = Heartbeats(services)
    heartbeats.note(liar, beat(backlog=2**70), LATER)
    for node_id in others:
        heartbeats.note(node_id, beat(), LATER)
    await heartbeats.flush()
    await heartbeats.flush()
    assert [node.heartbeat_at for node in await rows(services, [liar, *others])] == [factories.START, LATER, LATER]


@pytest.mark.parametrize("settings", ["postgresql"], indirect=True)
async def test_heartbeats_never_wait_for_a_transaction_that_holds_a_node(services: Services) -> None:
    node_ids = await create(services, NodeState.READY, NodeState.READY)
    heartbeats = Heartbeats(services)
    for node_id in node_ids:
        heartbeats.note(node_id, beat(), LATER)
    async with services.write() as session:
        await node_rows.get_locked(session, node_ids[0])
        await asyncio.wait_for(heartbeats.flush(), SOON_SECONDS)
    held, other = await rows(services, node_ids)
    assert (held.heartbeat_at, other.heartbeat_at) == (factories.START, LATER)


async def test_nodes_that_are_well_or_known_to_be_silent_cost_no_transaction(services: Services) -> None:
    await create(services, NodeState.READY, NodeState.UNREACHABLE, NodeState.LOST, NodeState.CORDONED, NodeState.JOINING)
    watch = NodeWatch(services)
    await watch.step_once(factories.START)
    with committed_here(services.control) as commits:
        for seconds in (2, 4, 6, 8):
            await watch.step_once(factories.START + timedelta(seconds=seconds))
        assert commits.count == 0
        await watch.step_once(factories.START + timedelta(seconds=10))
        assert commits.count == 2, "the ready one and the cordoned one are unreachable now"
        await watch.step_once(factories.START + timedelta(seconds=12))
        assert commits.count == 2


async def test_a_change_that_no_nudge_told_of_is_found(services: Services) -> None:
    changed, same = await create(services, NodeState.READY, NodeState.READY)
    services = replace(services, bus=bus.Bus())  # which the coordinator's own watch does not nudge
    watch = AssignmentWatch(services)
    await watch.look()
    with services.bus.subscribe(bus.node(changed)) as one, services.bus.subscribe(bus.node(same)) as other:
        async with services.control.write() as session:
            await node_rows.raise_desired_revision(session, [changed])
        await watch.look()
        assert await one.wait(SOON_SECONDS)
        assert not await other.wait(0.01)


async def test_a_node_that_dies_is_lost_though_the_clock_was_set_back(services: Services) -> None:
    """It stayed ready until the old time had come again, and jobs were placed on it."""
    dead, alive = await create(services, NodeState.READY, NodeState.READY)
    watch, set_back = NodeWatch(services), factories.START - timedelta(hours=2)
    await watch.step_once(factories.START)
    for seconds in range(0, 60, 2):
        now = set_back + timedelta(seconds=seconds)
        async with services.write() as session:
            await session.execute(update(NodeRow).where(NodeRow.id == alive).values(heartbeat_at=now))
        await watch.step_once(now)
    assert [row.state for row in await rows(services, [dead, alive])] == [NodeState.LOST, NodeState.READY]
