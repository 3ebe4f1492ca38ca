"""The watchdog that other tests rely on."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from tests.loop_watchdog import watched


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def test_a_callback_that_computes_is_found() -> None:
    with watched() as watch:
        asyncio.get_running_loop().call_soon(compute, 0.05)
        await asyncio.to_thread(int)
    assert watch.longest >= 0.05
    assert "compute" in watch.callback
    with pytest.raises(AssertionError, match="kept the event loop for"):
        watch.assert_free(0.04)


async def test_what_a_worker_thread_computes_is_not_the_loops() -> None:
    with watched() as watch:
        await asyncio.to_thread(compute, 0.05)
    watch.assert_free(0.04)


async def test_the_loop_of_another_thread_is_watched_where_it_is_named() -> None:
    names: list[int] = []
    begin, done = threading.Event(), threading.Event()

    async def work() -> None:
        names.append(threading.get_ident())
        done.set()
        await asyncio.to_thread(begin.wait, 5)
        compute(0.05)

    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()
    await asyncio.to_thread(done.wait, 5)
    with watched(names[0]) as watch:
        begin.set()
        await asyncio.to_thread(thread.join, 5)
    assert watch.longest >= 0.05
