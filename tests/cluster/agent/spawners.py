"""A spawner by itself, and enough of an agent to speak to it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import msgspec

from paceline.cluster.agent.confinement import Confinement
from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.ranks.launch import keep
from paceline.cluster.agent.spawner_link import ExitStatus, ProcessList, Spawn, ToSpawner, decode_process_list, encode_to_spawner
from paceline.cluster.agent.supervisor import DEFAULT_CONFINEMENT, SpawnerOptions, start_spawner
from paceline.cluster.protocol import RankKey
from paceline.training.link import RankOrder
from paceline.training.rank_folder import RankFolder
from paceline.training.spec.stored import StoredSpec
from tests.cluster.agent.conftest import FAKE_TRAINER, training_job, world
from tests.waiting import wait_until

TIMEOUT_SECONDS = 40.0


class Agent:
    """Enough of one to order ranks."""

    def __init__(self, folder: AgentFolder) -> None:
        wait_until(folder.spawner_socket.exists, "the spawner's socket", seconds=TIMEOUT_SECONDS)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(TIMEOUT_SECONDS)
        self.socket.connect(str(folder.spawner_socket))
        self.lines = self.socket.makefile("rb")
        self.process_list = self.read()

    def say(self, message: ToSpawner) -> None:
        self.socket.sendall(encode_to_spawner(message))

    def read(self) -> ProcessList:
        self.process_list = decode_process_list(self.lines.readline())
        return self.process_list

    def until(self, reached: Callable[[dict[RankKey, int]], bool]) -> dict[RankKey, int]:
        while not reached(dict(self.process_list.ranks)):
            self.read()
        return dict(self.process_list.ranks)

    def close(self) -> None:
        self.lines.close()
        self.socket.close()


class Node:
    def __init__(
        self, path: Path, *, log: str | None = None, trainer: str = FAKE_TRAINER, confinement: Confinement = DEFAULT_CONFINEMENT
    ) -> None:
        self.folder = AgentFolder(path)
        self.folder.create()
        if log is not None:
            self.folder.spawner_log.symlink_to(log)
        self.process = start_spawner(self.folder, SpawnerOptions("node", trainer, TIMEOUT_SECONDS, confinement))
        self.agent = Agent(self.folder)

    def order(self, rank: int = 0, **environment: object) -> Spawn:
        place = world("job", rank)
        folder = RankFolder(self.folder.path, "job", 1, rank)
        order = RankOrder(spec=StoredSpec(training_job()), world=place, folder=str(folder.path), agent_socket=str(self.folder.agent_socket))
        keep(order)
        return Spawn(order=order, environment={f"FAKE_{name.upper()}": str(value) for name, value in environment.items()})

    def spawn(self, order: RankOrder, program: tuple[str, ...], directory: Path, *, fresh: bool, **variables: str) -> Spawn:
        return Spawn(order=order, environment=variables, program=program, fresh=fresh, working_directory=str(directory))

    def run(self, spawn: Spawn) -> ExitStatus:
        """To its end."""
        key = RankKey.of(spawn.order.world)
        self.agent.say(spawn)
        self.agent.until(lambda ranks: key in ranks)
        self.agent.until(lambda ranks: key not in ranks)
        return self.exit_status(spawn)

    def exit_status(self, spawn: Spawn) -> ExitStatus:
        return msgspec.json.decode(RankFolder.at(Path(spawn.order.folder)).exit_status.read_bytes(), type=ExitStatus)

    def output(self, spawn: Spawn) -> str:
        return RankFolder.at(Path(spawn.order.folder)).output.read_text()

    def end(self) -> None:
        self.agent.close()
        self.process.kill()
        self.process.wait(TIMEOUT_SECONDS)
