"""A rank that is blocked in a collective is freed by its aborter, whatever gloo does."""

from __future__ import annotations

import concurrent.futures
import socket
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.futures import Future

from paceline.distributed.abort import GroupAborter, connected_sockets


class Silent:
    """A collective that never ends, as gloo's sometimes do."""

    def get_future(self) -> Future[list[torch.Tensor]]:
        return Future()


class Failing:
    """A collective that gloo fails once its sockets are shut down, before the aborter fails its future."""

    def __init__(self) -> None:
        self.future: Future[Any] = Future()

    def get_future(self) -> Future[list[torch.Tensor]]:
        return self.future


class Transfer:
    """A point-to-point transfer that is done already."""

    def wait(self) -> None: ...


class Reluctant:
    """A waiter pool that keeps a finished task."""

    def __init__(self) -> None:
        self.tasks: list[Callable[[], None]] = []

    def submit(self, task: Callable[[], None]) -> None:
        self.tasks.append(task)
        threading.Thread(target=task).start()


def test_listening_sockets_and_others_families_are_left_alone() -> None:
    before = connected_sockets()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        left, right = socket.socketpair()
        with left, right:
            found = {each.descriptor for each in connected_sockets() - before}
            assert found == {client.fileno()}


def test_only_the_groups_own_sockets_are_shut_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as users:
        aborter = GroupAborter()
        with socket.create_connection(server.getsockname()) as groups:
            aborter.complete_rendezvous()
            with socket.create_connection(server.getsockname()) as later:
                aborter.abort()
                with pytest.raises(BrokenPipeError):
                    groups.sendall(b"x")
                users.sendall(b"x")
                later.sendall(b"x")


def test_what_fails_because_the_group_was_aborted_says_so() -> None:
    """Now and then the error was gloo's "Connection closed by peer": gloo's thread may run between the end of the sockets and that of the
    futures.
    """
    aborter, work = GroupAborter(), Failing()
    promised = aborter.abortable_future(work, aborter.calls.begin("sum"), torch.zeros(1))
    aborter.aborted.set()
    work.future.set_exception(RuntimeError("Connection closed by peer"))
    with pytest.raises(RuntimeError, match="generation is over"):
        promised.wait()


def test_a_wait_that_gloo_forgets_is_ended_by_abort() -> None:
    aborter = GroupAborter()
    promised = aborter.abortable_future(Silent(), aborter.calls.begin("sum"), torch.zeros(1))
    assert not promised.done()
    aborter.abort()
    with pytest.raises(RuntimeError, match="generation is over"):
        promised.wait()
    with pytest.raises(RuntimeError, match="generation is over"):
        aborter.abortable_future(Silent(), aborter.calls.begin("sum"), torch.zeros(1)).wait()  # after the abort no wait begins


def test_what_was_transferred_is_its_caller_s_to_free(monkeypatch: pytest.MonkeyPatch) -> None:
    aborter = GroupAborter()
    monkeypatch.setattr(aborter, "_waiters", Reluctant())
    transfers = [Transfer(), Transfer()]
    left = [weakref.ref(transfer) for transfer in transfers]
    aborter.wait(transfers)
    del transfers
    assert [each() for each in left] == [None, None]


@pytest.mark.parametrize("early", [False, True])
def test_a_wait_for_a_thread_ends_with_the_generation(early: bool) -> None:
    aborter, never = GroupAborter(), concurrent.futures.Future[int]()
    threading.Thread(target=aborter.abort).start()
    if early:
        aborter.aborted.wait()
    with pytest.raises(RuntimeError, match="generation is over"):
        aborter.wait_for_future(never)


def test_a_wait_for_a_thread_ends_with_it_whether_it_succeeds_or_fails() -> None:
    aborter, well, ill = GroupAborter(), concurrent.futures.Future[int](), concurrent.futures.Future[int]()
    threading.Thread(target=well.set_result, args=[7]).start()
    aborter.wait_for_future(well)
    assert well.done()
    ill.set_exception(OSError("no space"))
    aborter.wait_for_future(ill)


def test_once_it_is_aborted_the_task_under_way_is_waited_for() -> None:
    """Only then can be read what it leaves behind."""
    aborter, begun, go_on, left = GroupAborter(), threading.Event(), threading.Event(), []

    def task() -> None:
        begun.set()
        go_on.wait(5)
        left.append(1)

    values = torch.zeros(1)
    aborter.run_in_order(task, aborter.calls.begin("sum", values), values)
    begun.wait(5)
    aborter.abort()
    go_on.set()
    aborter.wait_for_tasks_in_order()
    assert left == [1]


class AbortBegins:
    """A transfer that succeeds just as `abort` begins, before it has failed any wait."""

    def __init__(self, aborter: GroupAborter) -> None:
        self._aborter = aborter

    def wait(self) -> None:
        self._aborter.aborted.set()


def test_an_exchange_whose_second_half_is_left_out_has_not_succeeded() -> None:
    """It said so where `abort` began between the two: one rank of five went on with its own sums in place of all, and handed the wrong state on."""
    aborter, second = GroupAborter(), list[str]()

    def then() -> list[Transfer]:
        second.append("begun")
        return []

    exchange = aborter.wait_in_turn([AbortBegins(aborter)], then)
    with pytest.raises(RuntimeError, match="generation is over"):
        exchange.wait()
    assert second == []


def test_a_task_that_is_left_out_has_not_succeeded() -> None:
    aborter, values, done = GroupAborter(), torch.zeros(1), list[str]()
    begun, go_on = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        go_on.wait(5)
        aborter.aborted.set()  # as `abort` begins

    aborter.run_in_order(first, aborter.calls.begin("sum", values), values)
    begun.wait(5)
    second = aborter.run_in_order(lambda: done.append("computed"), aborter.calls.begin("sum", values), values)
    go_on.set()
    with pytest.raises(RuntimeError, match="generation is over"):
        second.wait()
    assert done == []
