"""Whole jobs without an agent or a coordinator: real rank processes, led through their generations by the test."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from paceline.monitoring.points import MetricRecord, RankEvent
from paceline.monitoring.spool import SpoolReader
from paceline.training.link import Joined, ProcessIdentity, RankOrder, Release, Result
from paceline.training.rank_folder import RankFolder
from paceline.training.spec.job import JobSpec
from paceline.training.spec.stored import StoredSpec
from tests.faults import state_of
from tests.linked_agent import LinkedAgent
from tests.ranks import JOB_ID, PROCESSES, RANK_TIMEOUT_SECONDS, StoreThread, make_world


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


@dataclass
class Job:
    """One job's folder, and a way to run its generations."""

    folder: Path
    spec: dict[str, Any]
    generation: int = 0
    patience: float = RANK_TIMEOUT_SECONDS  # with what its ranks say and do next
    gangs: list[RunningGang] = field(default_factory=list)

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
        """Fork the ranks of the next generation. `changes` are fields of their places, `by_rank` of one rank's place."""
        self.generation += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        by_rank = by_rank or {}
        self.gangs.append(RunningGang(self, world_size, pause, {rank: changes | by_rank.get(rank, {}) for rank in range(world_size)}))
        return self.gangs[-1]

    def run(self, world_size: int = 1, pause: bool = False, **changes: Any) -> list[RankEnd]:
        """... and wait for them."""
        return self.start(world_size, pause, **changes).wait()

    def resume(self, world_size: int = 1, pause: bool = False) -> list[RankEnd]:
        return self.run(world_size, pause, restore_from=self.newest_first(), restore_required=True)

    def end(self) -> None:
        """Whatever still runs; for a test that has failed."""
        for gang in self.gangs:
            gang.end()


class RunningGang:
    """The processes of one start and of the generations after it, by number, in the order in which they were started."""

    def __init__(self, job: Job, world_size: int, pause: bool, changes: dict[int, dict[str, Any]]) -> None:
        self.job = job
        self.store = StoreThread()
        self.store.admit(job.generation)
        self.agent = LinkedAgent(job.folder / f"a{job.generation}.sock", pause=pause, patience=job.patience)
        self.world_size = self.places = world_size  # of the present generation; `places`: with those parked
        self.identities: list[ProcessIdentity] = []
        self.folders: list[RankFolder] = []
        self.processes: list[Any] = []
        self.orders: dict[int, RankOrder] = {}  # the newest of each process
        self.ended = False
        for rank in range(world_size):
            self._fork(rank, **changes[rank])

    def park(self, **changes: Any) -> int:
        """Start a rank that has no place yet, beside a gang that trains; its number among this gang's processes."""
        self.agent.until(1, 0, Joined)
        self.places += 1
        return self._fork(self.places - 1, parked=True, **changes)

    def _fork(self, rank: int, **changes: Any) -> int:
        order = self._order(rank, self.world_size, **changes)
        process = PROCESSES.Process(target=become_rank, args=(order,))
        process.start()
        self.processes.append(process)
        self.identities.append(ProcessIdentity(self.job.generation, rank))
        self.folders.append(RankFolder.at(Path(order.folder)))
        return len(self.processes) - 1

    def _order(self, rank: int, world_size: int, **changes: Any) -> RankOrder:
        folder = RankFolder(self.job.folder, JOB_ID, self.job.generation, rank)
        folder.path.mkdir(parents=True)
        world = make_world(rank, world_size, self.store.port, self.job.checkpoints, self.job.generation, **changes)
        spec = JobSpec.model_validate(self.job.spec).model_dump(mode="json")
        return RankOrder(spec=StoredSpec(spec), world=world, folder=str(folder.path), agent_socket=str(self.agent.path))

    def close_up(
        self,
        *survivors: int,
        parked: tuple[int, ...] = (),
        unnotified: tuple[int, ...] = (),
        newcomers: int = 0,
        by_rank: dict[int, dict[str, Any]] | None = None,
    ) -> None:
        """A new generation of the processes with these numbers, told without waiting for their word, and after them of new ones. `by_rank`: fields of the new
        ranks' places."""
        self._form(survivors, parked, unnotified, at_boundary=False, newcomers=newcomers, by_rank=by_rank)

    def resize(self, *members: int, parked: tuple[int, ...] = (), unnotified: tuple[int, ...] = ()) -> None:
        """The same at a step that the present members agree on."""
        self._form(members, parked, unnotified, at_boundary=True)

    def _form(
        self,
        members: tuple[int, ...],
        parked: tuple[int, ...],
        unnotified: tuple[int, ...],
        *,
        at_boundary: bool,
        newcomers: int = 0,
        by_rank: dict[int, dict[str, Any]] | None = None,
    ) -> None:
        places = by_rank or {}
        self.job.generation += 1
        self.world_size = len(members) + newcomers
        self.places = self.world_size + len(parked)
        self.store.admit(self.job.generation, at_boundary=at_boundary)
        ranks = [*range(len(members)), *range(self.world_size, self.places)]
        for rank, number in zip(ranks, (*members, *parked), strict=True):
            changes = {"birth": self.identities[number], "parked": number in parked, "at_boundary": at_boundary} | places.get(rank, {})
            order = self._order(rank, self.world_size, **changes)
            self.orders[number] = order
            if number not in unnotified:
                self.tell(number)
        for rank in range(len(members), self.world_size):
            self._fork(rank, **places.get(rank, {}))

    def tell(self, number: int) -> None:
        """Again, or one that was left untold."""
        self.agent.order(self.orders[number])

    def release(self, *numbers: int) -> None:
        for number in numbers:
            self.agent.ask(self.identities[number], Release())

    def pids(self) -> list[int]:
        return [process.pid or 0 for process in self.processes]

    def kill(self, rank: int, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.pids()[rank], number)

    def end(self) -> None:
        """At once, whatever they are at; again is harmless. Their states are shown where a test fails."""
        for process in self.processes:
            if process.is_alive():
                print(f"process {process.pid} ended in state {state_of(process.pid)}", flush=True)
                process.kill()
            process.join()
        if not self.ended:
            self.ended = True
            self.store.close()
            self.agent.close()

    def wait(self, timeout: float | None = None) -> list[RankEnd]:
        """How each process ended, by number, and what it left in its first folder."""
        for process in self.processes:
            process.join(timeout or self.job.patience)
        self.end()
        return [read_end(process.exitcode or 0, folder) for process, folder in zip(self.processes, self.folders, strict=True)]

    def until(self, number: int, kind: type[Any]) -> Any:
        """The first such message of that process in the place that it was started for."""
        identity = self.identities[number]
        return self.agent.until(identity.generation, identity.rank, kind)

    def left(self, generation: int, rank: int) -> RankEnd:
        """What a rank of a later generation left; its exit code is its process's, see `wait`."""
        return read_end(0, RankFolder(self.job.folder, JOB_ID, generation, rank))


def become_rank(order: RankOrder) -> None:
    """As the spawner's child does."""
    from paceline.training.main import run_rank

    output = os.open(RankFolder.at(Path(order.folder)).output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.update(order.job_spec.environment.variables)
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
