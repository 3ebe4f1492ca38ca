"""Requests to ranks: which process gets them, as what, and what becomes of one that is not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.observer import RankObserver
from paceline.cluster.agent.rank_requests import RankRequests
from paceline.cluster.agent.ranks.rank_link import RankLink
from paceline.cluster.agent.ranks.rank_table import RankTable
from paceline.cluster.agent.ranks.ranks import RankPhase
from paceline.cluster.protocol import RankKey
from paceline.cluster.stacks import StackSample
from paceline.training.link import (
    GradientsRequest,
    PauseRequest,
    ProcessIdentity,
    RankHello,
    RankOrder,
    Reform,
    Release,
    ToRank,
    TraceRequest,
    decode_to_rank,
)
from paceline.training.spec.stored import StoredSpec
from tests.cluster.agent.conftest import AgentProcess, assignment, drained, running, training_job, world
from tests.cluster.agent.coordinator import Coordinator
from tests.waiting import until

TIMEOUT_SECONDS = 10.0
TRACE = TraceRequest(id="trace", steps=3)
GRADIENTS = GradientsRequest(id="gradients", names=("head.weight",), snapshots=False)


class Node:
    """The ranks of a node as the agent knows them, with a socket that their processes connect to."""

    def __init__(self, folder: AgentFolder) -> None:
        folder.create()
        self.path, self.changes, self.heard = folder.agent_socket, 0, set[RankKey]()
        self._processes: list[asyncio.StreamWriter] = []
        self.table = RankTable(folder)
        self.link = RankLink(self.path, lambda key, message: self.heard.add(key), self.table.knows)
        observer = RankObserver(self.table, 300.0, lambda slot: None, self._note_change)
        self.requests = RankRequests(self.table, self.link, observer, self._note_change)

    def _note_change(self) -> None:
        self.changes += 1

    def order(self, rank: int, generation: int = 1, birth: ProcessIdentity | None = None) -> RankOrder:
        place = world("job", rank, 2, generation=generation, birth=birth)
        return RankOrder(spec=StoredSpec(training_job()), world=place, folder=f"/g{generation}/rank{rank}", agent_socket=str(self.path))

    async def connect(self, rank: int) -> asyncio.StreamReader:
        """Connect as the process that was started as this rank of the first generation."""
        reader, writer = await asyncio.open_unix_connection(self.path)
        self._processes.append(writer)
        writer.write(msgspec.json.encode(RankHello(job_id="job", generation=1, rank=rank, pid=1, birth=ProcessIdentity(1, rank))) + b"\n")
        await until(lambda: RankKey("job", 1, rank) in self.heard, "the rank's hello")
        return reader

    async def close(self) -> None:
        for process in self._processes:
            process.close()
        await self.link.close()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(AgentFolder(tmp_path))
    await node.link.start()
    yield node
    await node.close()


async def received(reader: asyncio.StreamReader) -> ToRank:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return decode_to_rank(await reader.readline())


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (lambda requests, key: requests.pause(key), PauseRequest()),
        (lambda requests, key: requests.release(key), Release()),
        (lambda requests, key: requests.record(key, TRACE), TRACE),
        (lambda requests, key: requests.record(key, GRADIENTS), GRADIENTS),
    ],
    ids=["pause", "release", "trace", "gradients"],
)
async def test_a_request_reaches_the_rank_that_it_is_for_and_no_other(
    node: Node, ask: Callable[[RankRequests, RankKey], None], expected: ToRank
) -> None:
    keys = [node.table.add(node.order(rank)).key for rank in (0, 1)]
    beside, asked = [await node.connect(rank) for rank in (0, 1)]
    ask(node.requests, keys[1])
    assert await received(asked) == expected
    node.requests.record(keys[0], TraceRequest(id="mark", steps=1))
    assert await received(beside) == TraceRequest(id="mark", steps=1)  # and nothing came before it


async def test_a_process_that_was_moved_is_asked_by_the_key_that_it_was_started_with(node: Node) -> None:
    key = node.table.add(node.order(1)).key
    process = await node.connect(1)
    order = node.order(0, generation=2, birth=ProcessIdentity(1, 1))
    moved = node.table.move(key, order).key
    assert moved == RankKey("job", 2, 0)
    node.requests.take_place(moved)
    place = await received(process)
    assert isinstance(place, Reform)
    assert place.order.world == order.world
    node.requests.pause(moved)
    assert await received(process) == PauseRequest()


async def test_a_process_that_is_not_connected_gets_the_next_request_and_none_before(node: Node) -> None:
    """Requests are repeated on each tick: one that was kept would come twice, or after its rank was asked for something else."""
    key = node.table.add(node.order(0)).key
    node.requests.pause(key)
    process = await node.connect(0)
    node.requests.record(key, TRACE)
    assert await received(process) == TRACE


async def test_stacks_are_dropped_once_the_coordinator_has_them(node: Node) -> None:
    key = node.table.add(node.order(0)).key
    node.table.change(key, phase=RankPhase.ALIVE, stacks=StackSample(id="asked"))
    node.requests.drop_stacks(key)
    assert (node.table.ranks[key].stacks, node.changes) == (None, 1)


async def test_pause_is_repeated_until_the_rank_has_saved_and_gone(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.desire(assignment("job"))
    await coordinator.until(running("job"))
    await coordinator.desire(assignment("job", action="pause"))
    await coordinator.until(drained("job"))
    rank = coordinator.rank("job")
    assert rank is not None
    assert (rank.outcome, rank.exit_code) == ("paused", 0)
    await agent.end()
