"""The spawners of a node: the default one, and one for each environment of packages that jobs use, warm as long as jobs come.

The spawner of an environment starts with the first rank that needs it and ends IDLE_SECONDS after the last. It outlives its agent as the default one
does: the next agent finds it by its lock. One that ends by itself is not started again before another rank needs it, and its ranks have ended with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from paceline.cluster.agent.card_locks import CardLocks
from paceline.cluster.agent.errors import CardTakenError
from paceline.cluster.agent.folders import AgentFolder, lock
from paceline.cluster.agent.isolation import Isolation
from paceline.cluster.agent.spawner_link import ProcessList, ToSpawner
from paceline.cluster.agent.supervisor import SpawnerOptions, Supervisor

IDLE_SECONDS = 900.0
LOOK_SECONDS = 15.0
NO_RANKS = ProcessList(spawner_pid=0, ranks=())
MOST_LOG_BYTES = 4096

log = logging.getLogger(__name__)


class SpawnerFailedError(Exception):
    """The spawner of an environment ended by itself before it could fork a rank. The message ends with the last line that it wrote."""


class SpawnerInterruptedError(OSError):
    """The spawner of an environment was killed or could not be started, so that another try may help."""


@dataclass
class _Member:
    """The spawner of one environment."""

    supervisor: Supervisor
    task: asyncio.Task[None]
    log_size: int
    used_at: float
    warm: asyncio.Event = field(default_factory=asyncio.Event)
    ranks: int = 0
    users: int = 0  # launches under way


#: Called with a spawner's name, its process list, and whether that is the first of a connection.
OnProcessList = Callable[[str, ProcessList, bool], None]


class SpawnerFleet:
    def __init__(
        self,
        folder: AgentFolder,
        options: SpawnerOptions,
        locks: CardLocks,
        on_process_list: OnProcessList,
        isolation: Isolation,
        default: subprocess.Popen[bytes] | None = None,
    ) -> None:
        """Make a fleet. `default`: its default spawner, if that was started already."""
        self._folder, self._options, self._locks, self._on_process_list = folder, options, locks, on_process_list
        self._isolation = isolation
        self._default = Supervisor(folder, options, locks, self._apply_default, default)
        self._is_outdated = False
        self._members: dict[str, _Member] = {}

    # -- the default one

    async def run(self) -> None:
        """Keep the default spawner running, until it is shut down."""
        await self._default.run()

    def send(self, message: ToSpawner, name: str = "") -> bool:
        """Send a message to a spawner. Returns False while it is not there."""
        if not name:
            return self._default.send(message)
        return name in self._members and self._members[name].supervisor.send(message)

    def require_interpreters(self) -> None:
        """Raises OSError while the default spawner is one of the version before, adopted with its ranks: it would run the agent's own Python."""
        if self._is_outdated:
            raise OSError(
                "ranks that were started before this agent's upgrade still run here, and beside them none gets packages of its own with --run-as; "
                "restart the agent once they have ended"
            )

    def _apply_default(self, listed: ProcessList, first: bool) -> None:
        self._is_outdated = not listed.runs_interpreters
        self._on_process_list("", listed, first)

    # -- those of environments

    def adopt(self, names: Collection[str]) -> None:
        """Connect to the spawners that an agent before this one has left: those that live, and `names`, whose ranks have ended where their spawner has."""
        alive = set()
        for name in self._folder.spawner_names():
            held = lock(path := self._folder.spawner(name).lock)
            if held is None:
                alive.add(name)
            else:
                path.unlink(missing_ok=True)
                held.close()
        for name in alive | set(names):
            self._start(name, ())

    async def ensure(self, name: str, command: tuple[str, ...], variables: dict[str, str]) -> None:
        """Wait until the spawner of this environment is warm; it is started unless it is there. `command`: its interpreter and what that runs.
        Raises SpawnerFailedError and SpawnerInterruptedError."""
        while (member := self._members.get(name)) is not None and member.supervisor.is_ending:
            await asyncio.wait({member.task})
        member = member or self._start(name, command, variables)
        member.users, member.used_at = member.users + 1, time.monotonic()
        try:
            waiting = asyncio.create_task(member.warm.wait())
            try:
                await asyncio.wait({waiting, member.task}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
        finally:
            member.users -= 1
        if not member.warm.is_set():
            raise self._failure_of(member)

    def has_ended(self, name: str) -> bool:
        """Whether the spawner of an environment takes no more orders. The default one is followed by another."""
        return name != "" and (name not in self._members or self._members[name].supervisor.is_ending)

    def alive(self) -> set[str]:
        """The names of the environments that have a spawner."""
        return set(self._members)

    async def end_idle(self) -> None:
        """End spawners that no rank has needed for IDLE_SECONDS, now and then."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.end_unused_since(time.monotonic() - IDLE_SECONDS)

    async def end_unused_since(self, moment: float) -> None:
        """End the spawners of environments whose last rank ended before this moment, of the monotonic clock."""
        for name, member in list(self._members.items()):
            if not member.ranks and not member.users and member.used_at <= moment:
                log.info("the spawner of the environment %s is not needed any more", name)
                await member.supervisor.shut_down(0.0)

    def _start(self, name: str, command: tuple[str, ...], variables: dict[str, str] | None = None) -> _Member:
        options = replace(self._options, environment=name, command=command, variables=tuple((variables or {}).items()))
        supervisor = Supervisor(self._folder, options, self._locks, lambda listed, first: self._apply(name, listed, first))
        log_file = self._folder.spawner_log
        size = log_file.stat().st_size if log_file.exists() else 0
        task = asyncio.create_task(self._run(name, supervisor), name=f"spawner of {name}")
        self._members[name] = member = _Member(supervisor, task, size, time.monotonic())
        return member

    async def _run(self, name: str, supervisor: Supervisor) -> None:
        """Listen to the spawner of an environment until it has ended, and tell of its ranks, which end with it. Cancelled, it tells nothing: the ranks
        live on, for the next agent."""
        part = f"the spawner of the environment {name}"
        try:
            await self._isolation.keep_running(part, supervisor.run)
            self._reclaim_cards()
            await self._isolation.keep_running(part, lambda: self._tell_end(name))
        finally:
            del self._members[name]

    async def _tell_end(self, name: str) -> None:
        self._on_process_list(name, NO_RANKS, True)

    def _reclaim_cards(self) -> None:
        """Hold the locks that only an ended spawner held, one of a version that does not hand them on."""
        try:
            self._locks.renew()
        except CardTakenError as error:
            log.error("%s", error)

    def _apply(self, name: str, listed: ProcessList, first: bool) -> None:
        member = self._members.get(name)
        if member is not None:
            if member.ranks or listed.ranks:
                member.used_at = time.monotonic()
            member.ranks = len(listed.ranks)
            member.warm.set()
        self._on_process_list(name, listed, first)

    def _failure_of(self, member: _Member) -> SpawnerFailedError | SpawnerInterruptedError:
        told = member.supervisor.failure or "its process has ended"
        if not member.supervisor.failed_by_itself:
            return SpawnerInterruptedError(f"the process that is to have these packages warm did not start: {told}")
        last = ""
        with contextlib.suppress(OSError), open(self._folder.spawner_log, "rb") as file:
            file.seek(max(member.log_size, os.fstat(file.fileno()).st_size - MOST_LOG_BYTES))
            lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
            last = lines[-1].strip() if lines else ""
        return SpawnerFailedError(f"Paceline does not start with these packages: {last or told}")

    # -- the end

    async def shut_down(self, grace_seconds: float) -> None:
        """End all ranks, then all spawners."""
        everyone = [self._default, *(member.supervisor for member in self._members.values())]
        await asyncio.gather(*(each.shut_down(grace_seconds) for each in everyone))

    def kill(self) -> None:
        """Kill all spawners; their ranks die with them."""
        for each in (self._default, *(member.supervisor for member in self._members.values())):
            each.kill()

    async def close(self) -> None:
        """Leave the spawners of environments to the next agent."""
        tasks = [member.task for member in self._members.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def environment_command(python: Path) -> tuple[str, ...]:
    """The command line of a spawner of the environment with this interpreter; the packages of the agent are behind its own."""
    from paceline.cluster.agent.supervisor import SPAWNER

    return (str(python), "-m", SPAWNER)
