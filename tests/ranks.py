"""Functions on real rank processes: forked from a clean process with torch imported, meeting in a real store server."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import torch

from paceline.distributed.store_server import StoreServer
from paceline.training.link import RankPlace

RANK_TIMEOUT_SECONDS = 60.0
EXIT_TIMEOUT_SECONDS = 5.0
JOB_ID = "01JTEST0000000000000000000"
TOKEN = "token"

PROCESSES = multiprocessing.get_context("forkserver")
#: pytest: for the modules of tests, whose functions ranks run.
PROCESSES.set_forkserver_preload(["paceline.training.main", "tests.gangs", "pytest", "tests.preloaded"])


def run_ranks(
    function: Callable[..., Any],
    world_size: int,
    *arguments: Any,
    timeout: float = RANK_TIMEOUT_SECONDS,
    device: Literal["cpu", "cuda"] = "cpu",
) -> list[Any]:
    """`function(world, *arguments)` in a process per rank; its results by rank. It must be importable, its values picklable."""
    with store_server() as store, contextlib.ExitStack() as stack:
        store.admit(1)
        pipes = []
        for rank in range(world_size):
            receiver, sender = PROCESSES.Pipe(duplex=False)
            world = make_world(rank, world_size, store.port, Path("/nonexistent"), device=device, slot=rank)
            process = PROCESSES.Process(target=call, args=(sender, function, world, arguments))
            process.start()
            stack.callback(end, process)
            sender.close()
            pipes.append(receiver)
        return [receive(pipe, timeout) for pipe in pipes]


def end(process: Any) -> None:
    """A rank that has sent its result exits by itself; one that has not is of no use any more."""
    process.join(EXIT_TIMEOUT_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
    process.close()


def receive(pipe: Any, timeout: float) -> Any:
    if not pipe.poll(timeout):
        raise TimeoutError(f"a rank gave no result within {timeout:g} s")
    worked, value = pipe.recv()
    pipe.close()
    if not worked:
        raise AssertionError(f"a rank failed:\n{value}")
    return value


def call(sender: Any, function: Callable[..., Any], world: RankPlace, arguments: tuple[Any, ...]) -> None:
    """In the rank's process. Its threads are told first of all, as every rank's are: in a forked process torch makes its pool anew for the first that
    asks, and two of gloo's threads that ask at one instant find none ("Invalid thread pool!")."""
    torch.set_num_threads(1)
    try:
        sender.send((True, function(world, *arguments)))
    except BaseException:  # noqa: BLE001 - whatever it was is shown by the test
        sender.send((False, traceback.format_exc()))
    sender.close()
    os._exit(0)


def make_world(rank: int, world_size: int, port: int, checkpoints: Path, generation: int = 1, **changes: Any) -> RankPlace:
    fields: dict[str, Any] = {
        "job_id": JOB_ID,
        "generation": generation,
        "rank": rank,
        "local_rank": 0,
        "local_world_size": 1,
        "node_rank": rank,
        "world_size": world_size,
        "slot": 0,
        "device": "cpu",
        "store_host": "127.0.0.1",
        "store_port": port,
        "store_token": TOKEN,
        "interface": "lo",
        "checkpoint_directory": str(checkpoints),
    }
    return RankPlace(**(fields | changes))


class StoreThread:
    """The store server of a pretended agent."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._host = host
        self._loop = asyncio.new_event_loop()
        self._server = StoreServer()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.port: int = self._do(self._server.start(host))

    def admit(self, generation: int, *, at_boundary: bool = False) -> None:
        self._do(self._server.admit(JOB_ID, generation, TOKEN, at_boundary=at_boundary))

    def restart(self, generation: int) -> None:
        """As its agent does: the same port, and nothing remembered."""
        self.stop()
        self._server = StoreServer()
        self._do(self._server.start(self._host, self.port))
        self.admit(generation)

    def stop(self) -> None:
        self._do(self._server.close())

    def has_arrivals(self, generation: int) -> bool:
        return f"g{generation}/arrived" in self._server._namespaces[JOB_ID][generation].values

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)


@contextlib.contextmanager
def store_server(host: str = "127.0.0.1") -> Iterator[StoreThread]:
    store = StoreThread(host)
    try:
        yield store
    finally:
        store.close()
