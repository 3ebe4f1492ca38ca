"""Real rank processes for tests: forked from a clean process with torch imported, meeting in a real store server."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from distributed.store_server import StoreServer
from monitoring.points import MetricRecord, RankEvent
from monitoring.spool import SpoolReader
from training.link import Birth, FromRank, Joined, PauseRequest, RankFolder, RankHello, RankOrder, Reform, Result, World
from training.spec import JobSpec

RANK_TIMEOUT_SECONDS = 60.0
EXIT_TIMEOUT_SECONDS = 5.0
JOB_ID = "01JTEST0000000000000000000"
TOKEN = "token"

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["training.main", "tests.ranks"])


@dataclass(frozen=True)
class RankEnd:
    """What one rank left behind."""

    exit_code: int
    result: Result | None
    metrics: list[MetricRecord]
    events: list[RankEvent]
    output: str

    def curve(self, name: str) -> dict[int, Any]:
        return {record.step: record.values[name] for record in self.metrics if name in record.values}

    def events_of(self, kind: str) -> list[dict[str, Any]]:
        return [event.data for event in self.events if event.kind == kind]


class StoreThread:
    """The store server of a pretended agent."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._server = StoreServer()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.port: int = self._do(self._server.start("127.0.0.1"))

    def admit(self, generation: int) -> None:
        self._do(self._server.admit(JOB_ID, generation, TOKEN))

    def close(self) -> None:
        self._do(self._server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)


@contextlib.contextmanager
def store_server() -> Iterator[StoreThread]:
    store = StoreThread()
    try:
        yield store
    finally:
        store.close()


def make_world(rank: int, world_size: int, port: int, checkpoints: Path, generation: int = 1, **changes: Any) -> World:
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
    return World(**(fields | changes))


class LinkedAgent:
    """The agent's end of the ranks' socket: hears them, orders survivors into new generations, and with `pause` asks each rank
    to pause as soon as it has joined."""

    def __init__(self, path: Path, *, pause: bool = False) -> None:
        self.path = path
        self.heard: dict[tuple[int, int], list[Any]] = {}  # (generation, rank) -> messages
        self._pause = pause
        self._places: dict[socket.socket, tuple[int, int]] = {}
        self._connections: dict[Birth, socket.socket] = {}
        self._news = threading.Condition()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                self._hear(connection, msgspec.json.decode(line, type=FromRank))

    def _hear(self, connection: socket.socket, message: FromRank) -> None:
        with self._news:
            if isinstance(message, RankHello):
                self._connections[message.birth] = connection
                self._places[connection] = (message.generation, message.rank)
            self.heard.setdefault(self._places[connection], []).append(message)
            self._news.notify_all()
        if self._pause and isinstance(message, Joined):
            connection.sendall(msgspec.json.encode(PauseRequest()) + b"\n")

    def order(self, order: RankOrder) -> None:
        """Tell the process that was born as `order.world.born` to take this place."""
        with self._news:
            assert self._news.wait_for(lambda: order.world.born in self._connections, RANK_TIMEOUT_SECONDS), "the rank does not call"
            self._connections[order.world.born].sendall(msgspec.json.encode(Reform(order=order)) + b"\n")

    def until(self, generation: int, rank: int, kind: type[Any]) -> Any:
        """The first such message of that rank."""

        def said() -> Any:
            return next((each for each in self.heard.get((generation, rank), []) if isinstance(each, kind)), None)

        with self._news:
            found = self._news.wait_for(said, RANK_TIMEOUT_SECONDS)
        assert found, f"no {kind.__name__} from rank {rank} of generation {generation}; heard {self.heard}"
        return found

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@dataclass
class Job:
    """One job's folder, and a way to run its generations."""

    folder: Path
    spec: dict[str, Any]
    generation: int = 0

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def newest_first(self) -> tuple[str, ...]:
        """Committed checkpoints."""
        found = [path for path in self.checkpoints.glob("step-*.g*") if path.suffix != ".tmp"]
        return tuple(map(str, sorted(found, key=lambda path: int(path.name[5:].split(".")[0]), reverse=True)))

    def start(
        self, world_size: int = 1, pause: bool = False, by_rank: dict[int, dict[str, Any]] | None = None, **changes: Any
    ) -> RunningGang:
        """Fork the ranks of the next generation. `changes` are fields of their World, `by_rank` of one rank's."""
        self.generation += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        return RunningGang(self, world_size, pause, {rank: changes | (by_rank or {}).get(rank, {}) for rank in range(world_size)})

    def run(self, world_size: int = 1, pause: bool = False, **changes: Any) -> list[RankEnd]:
        """... and wait for them."""
        return self.start(world_size, pause, **changes).wait()

    def resume(self, world_size: int = 1, pause: bool = False) -> list[RankEnd]:
        return self.run(world_size, pause, restore_from=self.newest_first(), restore_required=True)


class RunningGang:
    """The processes of one start; `folders` of the present generation, by rank."""

    def __init__(self, job: Job, world_size: int, pause: bool, changes: dict[int, dict[str, Any]]) -> None:
        self.job = job
        self.store = StoreThread()
        self.store.admit(job.generation)
        self.agent = LinkedAgent(job.folder / f"a{job.generation}.sock", pause=pause)
        self.births = [Birth(job.generation, rank) for rank in range(world_size)]
        self.orders = [self._order(rank, world_size, **changes[rank]) for rank in range(world_size)]
        self.folders = [RankFolder.at(Path(order.folder)) for order in self.orders]
        self.processes = []
        for order in self.orders:
            process = _processes.Process(target=become_rank, args=(order,))
            process.start()
            self.processes.append(process)

    def _order(self, rank: int, world_size: int, **changes: Any) -> RankOrder:
        folder = RankFolder(self.job.folder, JOB_ID, self.job.generation, rank)
        folder.path.mkdir(parents=True)
        world = make_world(rank, world_size, self.store.port, self.job.checkpoints, self.job.generation, **changes)
        spec = JobSpec.model_validate(self.job.spec).model_dump(mode="json")
        return RankOrder(spec=spec, world=world, folder=str(folder.path), agent_socket=str(self.agent.path))

    def close_up(self, *survivors: int, untold: tuple[int, ...] = ()) -> None:
        """A new generation of the processes started as ranks `survivors`; told without waiting for their word."""
        self.job.generation += 1
        self.store.admit(self.job.generation)
        first = self.births[0].generation
        for rank, born in enumerate(survivors):
            order = self._order(rank, len(survivors), birth=Birth(first, born))
            if born not in untold:
                self.agent.order(order)

    def pids(self) -> list[int]:
        return [process.pid or 0 for process in self.processes]

    def kill(self, rank: int, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.pids()[rank], number)

    def wait(self) -> list[RankEnd]:
        """How each process ended, by the rank it was started as, and what it left in its first folder."""
        ends = []
        for process, folder in zip(self.processes, self.folders, strict=True):
            process.join(RANK_TIMEOUT_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
            ends.append(read_end(process.exitcode or 0, folder))
            process.close()
        self.store.close()
        self.agent.close()
        return ends

    def left(self, generation: int, rank: int) -> RankEnd:
        """What a rank of a later generation left; its exit code is its process's, see `wait`."""
        return read_end(0, RankFolder(self.job.folder, JOB_ID, generation, rank))


def become_rank(order: RankOrder) -> None:
    """As the spawner's child does."""
    from training.main import run_rank

    output = os.open(RankFolder.at(Path(order.folder)).output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os._exit(run_rank(order))


def read_end(exit_code: int, folder: RankFolder) -> RankEnd:
    result = msgspec.json.decode(folder.result.read_bytes(), type=Result) if folder.result.exists() else None
    metrics = [msgspec.json.decode(payload, type=MetricRecord) for payload in read_all(folder.metrics)]
    events = [msgspec.json.decode(payload, type=RankEvent) for payload in read_all(folder.events)]
    output = folder.output.read_text(errors="replace") if folder.output.exists() else ""
    return RankEnd(exit_code, result, metrics, events, output)


def read_all(path: Path) -> Iterator[bytes]:
    reader = SpoolReader(path)
    while records := reader.read():
        yield from records


def run_ranks(function: Callable[..., Any], world_size: int, *arguments: Any, timeout: float = RANK_TIMEOUT_SECONDS) -> list[Any]:
    """`function(world, *arguments)` in a process per rank; its results by rank. It must be importable, its values picklable."""
    with store_server() as store, contextlib.ExitStack() as stack:
        store.admit(1)
        pipes = []
        for rank in range(world_size):
            receiver, sender = _processes.Pipe(duplex=False)
            world = make_world(rank, world_size, store.port, Path("/nonexistent"))
            process = _processes.Process(target=call, args=(sender, function, world, arguments))
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


def call(sender: Any, function: Callable[..., Any], world: World, arguments: tuple[Any, ...]) -> None:
    try:
        sender.send((True, function(world, *arguments)))
    except BaseException:  # noqa: BLE001 - whatever it was is shown by the test
        sender.send((False, traceback.format_exc()))
    sender.close()
    os._exit(0)
