"""Threads that wait for gloo: as many as there are tasks, reused, and ended when there is no task."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from paceline.distributed import waiter_pool
from paceline.distributed.waiter_pool import WaiterPool
from tests.waiting import wait_until

TIMEOUT_SECONDS = 20.0


def thread_of(pool: WaiterPool, also: Callable[[], None] = lambda: None) -> int:
    found: list[int] = []
    done = threading.Event()

    def note() -> None:
        found.append(threading.get_ident())
        also()
        done.set()

    pool.submit(note)
    assert done.wait(TIMEOUT_SECONDS)
    return found[0]


def test_a_task_that_never_ends_keeps_no_other_waiting() -> None:
    pool, release, begun = WaiterPool(), threading.Event(), threading.Event()

    def never_end() -> None:
        begun.set()
        release.wait(TIMEOUT_SECONDS)

    pool.submit(never_end)
    assert begun.wait(TIMEOUT_SECONDS)
    assert thread_of(pool) != threading.get_ident()
    release.set()


def test_a_thread_is_used_again_and_ends_when_nobody_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = WaiterPool()
    monkeypatch.setattr(waiter_pool, "IDLE_SECONDS", TIMEOUT_SECONDS)  # it must not end while a busy machine keeps this test waiting
    first = thread_of(pool)
    wait_until(lambda: len(pool._idle) == 1, "the end of the task", seconds=TIMEOUT_SECONDS)
    assert thread_of(pool, lambda: monkeypatch.setattr(waiter_pool, "IDLE_SECONDS", 0.05)) == first
    wait_until(lambda: first not in [thread.ident for thread in threading.enumerate()], "the thread's end", seconds=TIMEOUT_SECONDS)
    assert thread_of(pool) > 0  # and another one begins
