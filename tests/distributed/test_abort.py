"""A rank that is blocked in a collective is freed by its fence, whatever gloo does."""

from __future__ import annotations

import concurrent.futures
import socket
import threading
import weakref
from collections.abc import Callable

import pytest
import torch
from torch.futures import Future

from distributed.abort import Fence, connected_sockets


class Silent:
    """A collective that never ends, as gloo's sometimes do."""

    def get_future(self) -> Future[list[torch.Tensor]]:
        return Future()


class Transfer:
    """Done already."""

    def wait(self) -> None: ...


class Reluctant:
    """Waiters that do not let go of a task when it is done."""

    def __init__(self) -> None:
        self.tasks: list[Callable[[], None]] = []

    def do(self, task: Callable[[], None]) -> None:
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
        fence = Fence()
        with socket.create_connection(server.getsockname()) as groups:
            fence.complete()
            with socket.create_connection(server.getsockname()) as later:
                fence.strike()
                with pytest.raises(BrokenPipeError):
                    groups.sendall(b"x")
                users.sendall(b"x")
                later.sendall(b"x")


def test_a_promise_that_gloo_forgets_is_broken_by_the_strike() -> None:
    fence = Fence()
    promised = fence.guard(Silent(), fence.calls.begin("sum"), torch.zeros(1))
    assert not promised.done()
    fence.strike()
    with pytest.raises(RuntimeError, match="generation is over"):
        promised.wait()
    with pytest.raises(RuntimeError, match="generation is over"):
        fence.guard(Silent(), fence.calls.begin("sum"), torch.zeros(1)).wait()  # after the strike nobody begins to wait


def test_what_was_transferred_is_its_caller_s_to_free(monkeypatch: pytest.MonkeyPatch) -> None:
    fence = Fence()
    monkeypatch.setattr(fence, "_waiters", Reluctant())
    transfers = [Transfer(), Transfer()]
    left = [weakref.ref(transfer) for transfer in transfers]
    fence.wait(transfers)
    del transfers
    assert [each() for each in left] == [None, None]


@pytest.mark.parametrize("early", [False, True])
def test_nobody_stays_with_a_thread_of_a_generation_that_is_over(early: bool) -> None:
    fence, never = Fence(), concurrent.futures.Future[int]()
    threading.Thread(target=fence.strike).start()
    if early:
        fence.struck.wait()
    with pytest.raises(RuntimeError, match="generation is over"):
        fence.attend(never)


def test_a_thread_is_attended_until_its_end_well_or_not() -> None:
    fence, well, ill = Fence(), concurrent.futures.Future[int](), concurrent.futures.Future[int]()
    threading.Thread(target=well.set_result, args=[7]).start()
    fence.attend(well)
    assert well.done()
    ill.set_exception(OSError("no space"))
    fence.attend(ill)
