"""Rank processes for the scripts that show a protocol: real processes on this machine, which meet in a rendezvous store as those of a job do."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

from paceline.distributed.env import export_rank
from paceline.distributed.store_server import StoreServer
from paceline.training.link import RankPlace

JOB_ID, TOKEN = "protocol-run", "protocol-run"
#: A rank that says nothing for so long is taken to hang.
SILENCE_SECONDS = 120.0
#: After the loss of a rank the others notice by their connections; this bounds it.
NOTICE_SECONDS = 30.0
STORE_SECONDS = 10.0
PROCESSES = multiprocessing.get_context("forkserver")

#: What a rank runs: (its place, a function that tells the parent something, the arguments).
RankFunction = Callable[..., None]


class Said(NamedTuple):
    """Something that a rank has told."""

    rank: int
    value: Any


class RankEnd(NamedTuple):
    """The end of a rank's process."""

    rank: int
    exit_code: int  # 0: its function returned; negative: a signal
    error: str  # the traceback of what it raised, or empty


@contextlib.contextmanager
def store_of_generations() -> Iterator[Callable[[int], int]]:
    """Serve a rendezvous store, and yield a function that admits a generation and returns the store's port."""
    loop, server = asyncio.new_event_loop(), StoreServer()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def do(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(STORE_SECONDS)

    port = do(server.start("127.0.0.1"))

    def admit(generation: int) -> int:
        do(server.admit(JOB_ID, generation, TOKEN))
        return int(port)

    try:
        yield admit
    finally:
        do(server.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def run_gang(function: RankFunction, world_size: int, generation: int, port: int, *arguments: Any) -> Iterator[Said | RankEnd]:
    """Run `function(world, tell, *arguments)` in a process for each rank; yield what they tell and how they end, as it comes.

    Once a rank has failed, the others get `NOTICE_SECONDS` to notice. Raises TimeoutError where all fall silent.
    """
    PROCESSES.set_forkserver_preload([function.__module__])
    pipes: dict[Connection, int] = {}
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(world_size):
            receiver, sender = PROCESSES.Pipe(duplex=False)
            world = place(rank, world_size, generation, port, Path(folder))
            process = PROCESSES.Process(target=_become_rank, args=(sender, function, world, folder, arguments))
            process.start()
            sender.close()
            processes.append(process)
            pipes[receiver] = rank
        try:
            yield from _listen(pipes, processes)
        finally:
            for process in processes:
                process.kill()
                process.join()
                process.close()


def place(rank: int, world_size: int, generation: int, port: int, folder: Path) -> RankPlace:
    """Return a rank's place, all ranks on this machine."""
    return RankPlace(
        job_id=JOB_ID,
        generation=generation,
        rank=rank,
        local_rank=rank,
        local_world_size=world_size,
        node_rank=0,
        world_size=world_size,
        slot=rank,
        device="cpu",
        store_host="127.0.0.1",
        store_port=port,
        store_token=TOKEN,
        checkpoint_directory=str(folder),
    )


def _listen(pipes: dict[Connection, int], processes: list[Any]) -> Iterator[Said | RankEnd]:
    errors: dict[int, str] = {}
    deadline: float | None = None  # once a rank has failed
    while pipes:
        patience = SILENCE_SECONDS if deadline is None else max(0.0, deadline - time.monotonic())
        ready = wait(list(pipes), patience)
        if not ready:
            if deadline is None:
                raise TimeoutError(f"rank {', '.join(map(str, pipes.values()))} said nothing for {SILENCE_SECONDS:g} s")
            for rank in pipes.values():
                processes[rank].kill()
            deadline = time.monotonic() + NOTICE_SECONDS
        for pipe in ready:
            assert isinstance(pipe, Connection)
            rank = pipes[pipe]
            try:
                worked, value = pipe.recv()
            except EOFError:
                del pipes[pipe]
                processes[rank].join()
                end = RankEnd(rank, processes[rank].exitcode, errors.get(rank, ""))
                deadline = deadline or (time.monotonic() + NOTICE_SECONDS if end.exit_code else None)
                yield end
                continue
            if worked:
                yield Said(rank, value)
            else:
                errors[rank] = value


def _become_rank(sender: Any, function: RankFunction, world: RankPlace, folder: str, arguments: tuple[Any, ...]) -> None:
    import torch

    torch.set_num_threads(1)
    export_rank(world, "lo", Path(folder))
    try:
        function(world, lambda value: sender.send((True, value)), *arguments)
    except BaseException:  # noqa: BLE001 - the parent shows it
        sender.send((False, traceback.format_exc()))
        os._exit(1)
    sender.close()
    os._exit(0)
