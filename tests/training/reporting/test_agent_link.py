"""The agent may be absent, new, or stuck: training does not notice."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paceline.distributed.abort import GroupAborter
from paceline.training.link import (
    CheckpointRequest,
    Joined,
    Parked,
    PauseRequest,
    ProcessIdentity,
    RankOrder,
    Reform,
    Release,
    ToRank,
    encode_to_rank,
)
from paceline.training.rank_folder import RankFolder
from paceline.training.reporting.agent_link import AgentLink
from paceline.training.spec.stored import StoredSpec
from tests.ranks import make_world
from tests.waiting import wait_until

TIMEOUT_SECONDS = 10.0
WORLD = make_world(1, 2, 0, Path("/checkpoints"), generation=3)


def listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.settimeout(TIMEOUT_SECONDS)
    listener.bind(str(path))
    listener.listen()
    return listener


def accept(listener: socket.socket) -> tuple[socket.socket, Any]:
    connection, _ = listener.accept()
    connection.settimeout(TIMEOUT_SECONDS)
    return connection, connection.makefile("rb")


def read(lines: Any) -> dict[str, Any]:
    return dict(msgspec.json.decode(lines.readline()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.sock"


@pytest.fixture
def link(path: Path) -> Iterator[AgentLink]:
    link = AgentLink(str(path), WORLD)
    yield link
    link.close()


def test_requests_arrive(path: Path, link: AgentLink) -> None:
    with listen(path) as listener:
        connection, lines = accept(listener)
        with connection, lines:
            hello = {"type": "hello", "job_id": WORLD.job_id, "generation": 3, "rank": 1, "pid": os.getpid()}
            assert read(lines) == hello | {"birth": {"generation": 3, "rank": 1}}
            for request in (PauseRequest(), PauseRequest(), CheckpointRequest()):  # twice is harmless
                connection.sendall(encode_to_rank(request))
            wait_until(lambda: link.pause_wanted and link.checkpoint_wanted, "both requests", seconds=TIMEOUT_SECONDS)
            link.checkpoint_done()
            assert not link.checkpoint_wanted


def test_a_new_agent_is_told_everything_again(path: Path, link: AgentLink) -> None:
    link.send(Joined(step=5, total_steps=9))
    for _ in range(2):  # the agent is killed, another one comes
        with listen(path) as listener:
            connection, lines = accept(listener)
            with connection, lines:
                assert read(lines)["type"] == "hello"
                assert read(lines) == {"type": "joined", "step": 5, "total_steps": 9}


def test_an_agent_that_never_reads_blocks_nothing(path: Path, link: AgentLink) -> None:
    with listen(path) as listener:
        connection, lines = accept(listener)
        with connection, lines:
            read(lines)
            started = time.monotonic()
            for step in range(50_000):  # megabytes more than any socket buffer holds
                link.progress(step)
            assert time.monotonic() - started < TIMEOUT_SECONDS


def test_nonsense_from_the_agent_ends_that_connection_only(path: Path, link: AgentLink) -> None:
    with listen(path) as listener:
        connection, lines = accept(listener)
        with connection, lines:
            connection.sendall(b'{"type": "unheard of"}\n')
            again, more_lines = accept(listener)
            with again, more_lines:
                assert read(more_lines)["type"] == "hello"
                again.sendall(encode_to_rank(PauseRequest()))
                wait_until(lambda: link.pause_wanted, "the request", seconds=TIMEOUT_SECONDS)


def test_without_an_agent_everything_is_quiet(link: AgentLink) -> None:
    link.send(Joined(step=0, total_steps=1))
    link.progress(1)
    assert not link.pause_wanted


def order(generation: int, *, at_boundary: bool = False) -> RankOrder:
    place = make_world(0, 1, 0, Path("/checkpoints"), generation=generation, birth=ProcessIdentity(3, 1), at_boundary=at_boundary)
    return RankOrder(
        spec=StoredSpec({}), world=place, folder=str(RankFolder(Path("/data"), place.job_id, generation, 0).path), agent_socket=""
    )


def aborter_of_a_left_group() -> GroupAborter:
    """So that nobody waits for this rank to come out of its generation."""
    aborter = GroupAborter()
    aborter.exited.set()
    aborter.end_rendezvous()
    return aborter


def test_an_order_to_move_aborts_the_group_and_is_obeyed_once(path: Path, link: AgentLink) -> None:
    aborter = aborter_of_a_left_group()
    link.guard(aborter)
    with listen(path) as listener:
        connection, lines = accept(listener)
        with connection, lines:
            read(lines)
            for generation in (5, 5, 3):  # repeated, and overtaken
                connection.sendall(encode_to_rank(Reform(order=order(generation))))
            assert link.next_order(TIMEOUT_SECONDS) == order(5)
            wait_until(aborter.aborted.is_set, "the abort", seconds=TIMEOUT_SECONDS)
            link.enter(order(5).world)
            hello = read(lines)
            assert (hello["generation"], hello["rank"], hello["birth"]) == (5, 0, {"generation": 3, "rank": 1})
            assert link.next_order(0.0) is None


def test_a_group_that_is_overtaken_before_it_is_built_is_aborted_at_once(path: Path, link: AgentLink) -> None:
    with listen(path) as listener:
        connection, lines = accept(listener)
        with connection, lines:
            connection.sendall(encode_to_rank(Reform(order=order(4))))
            assert link.next_order(TIMEOUT_SECONDS) == order(4)
            aborter = GroupAborter()
            link.guard(aborter)
            assert aborter.aborted.is_set()


def test_an_order_for_a_boundary_only_marks_and_one_that_breaks_in_aborts(path: Path, link: AgentLink) -> None:
    aborter = aborter_of_a_left_group()
    link.guard(aborter)
    with listen(path) as listener:
        connection, lines = accept(listener)
        with connection, lines:
            read(lines)
            connection.sendall(encode_to_rank(Reform(order=order(4, at_boundary=True))))
            assert link.next_order(TIMEOUT_SECONDS) == order(4, at_boundary=True)
            assert link.leave_wanted
            later = GroupAborter()
            link.guard(later)  # as a rank does that was told before it had built its group
            assert not aborter.aborted.is_set()
            assert not later.aborted.is_set()
            later.exited.set()
            later.end_rendezvous()
            connection.sendall(encode_to_rank(Reform(order=order(5))))
            wait_until(later.aborted.is_set, "the abort", seconds=TIMEOUT_SECONDS)
            connection.sendall(encode_to_rank(Reform(order=order(4, at_boundary=True))))  # overtaken on its way
            connection.sendall(encode_to_rank(CheckpointRequest()))
            wait_until(lambda: link.checkpoint_wanted, "what was sent after it", seconds=TIMEOUT_SECONDS)
            assert link.next_order(0.0) == order(5)


@pytest.mark.parametrize(
    ("request_", "parked", "released"), [(Release(), False, True), (PauseRequest(), False, False), (PauseRequest(), True, True)]
)
def test_who_is_released(path: Path, link: AgentLink, request_: ToRank, parked: bool, released: bool) -> None:
    if parked:
        link.send(Parked())
    with listen(path) as listener:
        connection, lines = accept(listener)
        with connection, lines:
            connection.sendall(encode_to_rank(request_) + encode_to_rank(CheckpointRequest()))
            wait_until(lambda: link.checkpoint_wanted, "both requests", seconds=TIMEOUT_SECONDS)
            assert link.released == released
            assert link.leave_wanted == isinstance(request_, Release)
            assert link.next_order(0.0) is None
