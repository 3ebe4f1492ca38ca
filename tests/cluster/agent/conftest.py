"""Agents under test are real processes; so are their spawners and ranks. Whatever a test leaves behind fails it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest

from paceline.cli.local.processes import all_processes
from paceline.cluster.agent.memory_groups import enter
from paceline.cluster.protocol import DesiredAssignment
from paceline.cluster.states import RankState
from paceline.training.link import RankPlace
from paceline.training.spec.stored import StoredSpec
from tests.cluster.agent.coordinator import TOKEN, Coordinator
from tests.processes import command_of, kill_all

ROOT = Path(__file__).parents[3]
EXIT_TIMEOUT_SECONDS = 40.0
FAKE_TRAINER = "tests.cluster.agent.fake_trainer"


class AgentProcess:
    """`cluster.agent.main` with a data folder of its own, started as often as a test likes."""

    def __init__(self, data: Path, server: str) -> None:
        self.data = data
        self.server = server
        self.process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}
        self.slots: int | None = 2
        self.group: Path | None = None  # the control group that it is started in

    def start(self, *arguments: str, token: str = TOKEN) -> None:
        command = [sys.executable, "-m", "paceline.cluster.agent.main", "--server", self.server, "--name", "node", "--data", str(self.data)]
        defaults = ["--checkpoints", str(self.data.parent / "checkpoints"), "--trainer", FAKE_TRAINER, "--token", token]
        defaults += [] if self.slots is None else ["--slots", str(self.slots)]
        with open(self.data.parent / "agent.txt", "ab") as output:
            environment = os.environ | self.environment
            self.process = subprocess.Popen(
                [*command, *defaults, *arguments], cwd=ROOT, env=environment, stdout=output, stderr=output, preexec_fn=self._enter_group
            )

    def _enter_group(self) -> None:
        if self.group is not None:
            enter(self.group)

    @property
    def log(self) -> str:
        return (self.data.parent / "agent.txt").read_text()

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signal it, wait for it; its exit code as Popen tells it."""
        assert self.process is not None
        self.process.send_signal(number)
        return await self.exited()

    async def exited(self) -> int:
        assert self.process is not None
        return await asyncio.to_thread(self.process.wait, EXIT_TIMEOUT_SECONDS)

    def processes(self) -> list[psutil.Process]:
        """Everything that runs from this data folder: agent, spawner, ranks and what they started."""
        return [process for process in all_processes() if process.pid != os.getpid() and _mentions(process, str(self.data))]

    def spawner(self) -> psutil.Process:
        return self.leaders("paceline.cluster.agent.spawner")[0]

    def leaders(self, word: str) -> list[psutil.Process]:
        """The processes with that word on their command lines, without those that they have forked: ranks carry their spawner's."""
        return [process for process in self.processes() if _leads(process, word)]


def _leads(process: psutil.Process, word: str) -> bool:
    try:
        parent = process.parent()
        return word in process.cmdline() and (parent is None or word not in command_of(parent))
    except psutil.NoSuchProcess:
        return False


def _mentions(process: psutil.Process, data: str) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return any(data in word for word in (*process.cmdline(), *process.environ().values()))
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


@pytest.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    coordinator = Coordinator()
    await coordinator.start()
    yield coordinator
    await coordinator.stop()


@pytest.fixture
def agent(coordinator: Coordinator, tmp_path: Path) -> Iterator[AgentProcess]:
    data = tmp_path / "agent"
    agent = AgentProcess(data, coordinator.url)
    yield agent
    kill_all(agent.processes())
    if agent.process is not None:
        agent.process.wait(EXIT_TIMEOUT_SECONDS)


def world(job_id: str, rank: int = 0, world_size: int = 1, generation: int = 1, **changes: Any) -> RankPlace:
    fields: dict[str, Any] = {
        "job_id": job_id,
        "generation": generation,
        "rank": rank,
        "local_rank": rank,
        "local_world_size": world_size,
        "node_rank": 0,
        "world_size": world_size,
        "slot": rank,
        "device": "cpu",
        "store_host": "127.0.0.1",
        "store_port": 1,
        "store_token": "token",
        "checkpoint_directory": "",
    }
    return RankPlace(**fields | changes)


def assignment(
    job_id: str,
    *worlds: RankPlace,
    action: Literal["run", "pause", "release", "stop"] = "run",
    grace: float = 3.0,
    spec: dict[str, Any] | None = None,
) -> DesiredAssignment:
    worlds = worlds or (world(job_id),)
    return DesiredAssignment(
        job_id=job_id,
        generation=worlds[0].generation,
        action=action,
        grace_seconds=grace,
        spec=StoredSpec(spec or training_job()),
        worlds=worlds,
    )


def training_job(**variables: object) -> dict[str, Any]:
    """For the fake trainer; `variables` become FAKE_* in the rank's environment."""
    environment = {f"FAKE_{name.upper()}": str(value) for name, value in variables.items()}
    return {
        "name": "job",
        "model": {"kind": "mlp"},
        "data": {"kind": "digits"},
        "training": {"steps": 1},
        "environment": {"variables": environment},
    }


def script_job(path: Path, source: str, *args: str, slots: int = 1) -> dict[str, Any]:
    path.write_text(source)
    resources = {"nodes": 1, "slots_per_node": slots}
    return {"name": "job", "resources": resources, "script": {"path": str(path), "args": list(args)}}


def printed(job: str, lines: int, rank: int = 0):  # type: ignore[no-untyped-def]
    """So many lines have arrived, and the process is known: the two come on ways of their own."""
    return lambda c: len(c.of(job, rank).text) >= lines and (seen := c.rank(job, rank)) and seen.pid


def running(job: str, rank: int = 0, generation: int = 1):  # type: ignore[no-untyped-def]
    return lambda c: (seen := c.rank(job, rank, generation)) and seen.state == RankState.RUNNING


def drained(job: str, rank: int = 0, generation: int = 1):  # type: ignore[no-untyped-def]
    return lambda c: (seen := c.rank(job, rank, generation)) and seen.drained


def parked(rank: int, generation: int):  # type: ignore[no-untyped-def]
    return lambda c: (seen := c.rank("job", rank, generation)) and seen.state == RankState.PARKED


def pid_of(coordinator: Coordinator, rank: int, generation: int) -> int:
    seen = coordinator.rank("job", rank, generation)
    assert seen is not None
    assert seen.pid is not None
    return seen.pid
