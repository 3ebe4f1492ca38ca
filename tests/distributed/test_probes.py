"""Probes of machines and processes: the kernel answers, whatever the process does."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from paceline.distributed.abort import GroupAborter
from paceline.distributed.calls import REMEMBERED_CALLS, Calls, point_to_point_call
from paceline.distributed.errors import StoreUnreachableError
from paceline.distributed.probes import (
    ASKED_PEERS,
    ATTEMPT_SECONDS,
    ATTEMPTS,
    Endpoint,
    HostProbePort,
    ProcessProbePort,
    ended_processes,
    require_answer,
    unanswered,
)
from paceline.training.link import RankPlace
from tests.ranks import run_ranks


@contextlib.contextmanager
def silent_machine(host: str) -> Iterator[Endpoint]:
    """The kernel drops calls to a listener whose queue is full, as if the machine were down."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server((host, 0), backlog=0))
        for _ in range(2):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(server.getsockname())
        yield Endpoint(host, server.getsockname()[1])


def test_a_probe_port_answers_without_anybody_listening() -> None:
    probe_port = HostProbePort("127.0.0.1")
    assert unanswered({1: probe_port.endpoint}) == ()
    probe_port.close()
    assert unanswered({1: probe_port.endpoint}) == ()


def test_a_listener_answers_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert unanswered({3: Endpoint("127.0.0.1", server.getsockname()[1])}) == ()


def test_machines_without_an_answer_are_found_among_others_and_in_time() -> None:
    probe_port, started = HostProbePort("127.0.0.1"), time.monotonic()
    with silent_machine("127.0.0.2") as silent:
        assert unanswered({0: probe_port.endpoint, 1: silent, 2: silent, 3: probe_port.endpoint}) == (1, 2)
    assert time.monotonic() - started < ATTEMPTS * ATTEMPT_SECONDS + 5.0
    probe_port.close()
    assert unanswered({}) == ()


def test_who_gets_no_answer_from_the_store_says_where_it_is_and_whom_it_asked() -> None:
    refusal = pytest.raises(StoreUnreachableError, match=r"rank 2 gets no answer from its gang's lead node at 127\.0\.0\.2:\d+")
    with silent_machine("127.0.0.2") as silent, refusal:
        require_answer(2, silent)
    require_answer(2, silent)  # no process listens there any more, but its machine answers


def live_until_told(pipe: Any) -> None:
    presence = ProcessProbePort()
    pipe.send(presence.at("127.0.0.1"))
    pipe.recv()


def test_a_process_that_has_ended_is_told_from_one_that_is_stopped() -> None:
    context = multiprocessing.get_context("fork")
    pipes, processes = [], []
    for _ in range(2):
        ours, theirs = context.Pipe()
        processes.append(context.Process(target=live_until_told, args=(theirs,)))
        processes[-1].start()
        pipes.append(ours)
    places = {number: pipe.recv() for number, pipe in enumerate(pipes, 1)}
    os.kill(processes[0].pid or 0, signal.SIGSTOP)
    assert ended_processes(places, 0) == ()
    processes[1].kill()
    processes[1].join()
    assert ended_processes(places, 0) == (2,)
    processes[0].kill()
    processes[0].join()
    assert ended_processes(places, 3) == (1, 2)


def test_a_machine_that_does_not_answer_is_no_process_that_has_ended() -> None:
    with silent_machine("127.0.0.2") as silent:
        assert ended_processes({1: silent}, 0) == ()


def test_calls_to_a_presence_do_not_fill_its_queue_for_ever() -> None:
    presence = ProcessProbePort()
    for _ in range(3):
        for _ in range(ASKED_PEERS):
            assert ended_processes({1: presence.at("127.0.0.1")}, 0) == ()
    presence.close()


def test_of_many_peers_those_that_follow_are_asked() -> None:
    port = HostProbePort("127.0.0.1")
    places = dict.fromkeys((peer for peer in range(100) if peer != 90), port.endpoint)
    asked = ended_processes(places, 90)  # no process listens there
    assert asked == tuple(sorted([*range(91, 100), *range(ASKED_PEERS - 9)]))
    port.close()


def test_a_probe_port_is_none_of_the_groups_sockets_and_can_be_called_on_while_the_group_is_aborted() -> None:
    probe_port = HostProbePort("127.0.0.1")
    GroupAborter().abort()
    assert unanswered({0: probe_port.endpoint}) == ()
    probe_port.close()


def test_calls_are_numbered_and_the_newest_remembered() -> None:
    calls = Calls()
    made = [calls.begin("sum", torch.zeros(3, 2)) for _ in range(REMEMBERED_CALLS + 2)]
    assert [call.number for call in calls.recent] == [call.number for call in made[2:]]
    assert str(made[0]) == "sum of float32[3, 2]"
    assert str(calls.begin("exchange")) == "exchange"
    with calls.awaiting(made[-1]):
        assert calls.awaited is made[-1]
    assert calls.awaited is None
    with calls.awaiting(point_to_point_call("receive from rank 2")) as _:
        calls.done(made[-1])  # not the call that is waited for
        assert calls.awaited is not None


def numbers_of(world: RankPlace) -> tuple[list[str], set[int]]:
    from paceline.distributed.joining import join

    aborter = GroupAborter()
    group = join(world, aborter)
    group.start_sum(torch.ones(2))()
    group.all_gather_object(world.rank)
    return [str(call) for call in aborter.calls.recent], set(aborter.host_probes)


def test_every_rank_counts_the_same_calls_and_knows_the_others_probe_ports() -> None:
    (first, its_peers), (second, others_peers) = run_ranks(numbers_of, 2)
    assert first == second
    assert "sum of float32[2]" in first
    assert (its_peers, others_peers) == ({1}, {0})
