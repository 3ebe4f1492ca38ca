"""The agent's side of its spawner: finds a running one or starts one, and passes its process lists on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from paceline.cluster.agent.card_locks import CardLocks
from paceline.cluster.agent.confinement import Confinement, inherited_environment
from paceline.cluster.agent.errors import CardTakenError, SpawnerStartError
from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.processes import AGENT_DATA_VARIABLE
from paceline.cluster.agent.settings import AgentSettings
from paceline.cluster.agent.spawner_link import ProcessList, Shutdown, ToSpawner, decode_process_list, encode_to_spawner
from paceline.location import ROOT
from paceline.monitoring.backoff import Backoff

START_TIMEOUT_SECONDS = 120.0  # importing torch from a cold disk
ENVIRONMENT_TIMEOUT_SECONDS = 600.0  # its end is the job's, on a node that is busy with other jobs
CONNECT_POLL_SECONDS = 0.02
FIRST_RESTART_SECONDS, LONGEST_RESTART_SECONDS = 1.0, 2.0
EXIT_TIMEOUT_SECONDS = 5.0
ROSTER_LIMIT_BYTES = 1 << 20
SPAWNER = "paceline.cluster.agent.spawner"
LEAVING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
DEFAULT_CONFINEMENT = Confinement()

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SpawnerOptions:
    """Options that a spawner is started with."""

    node: str  # its name, for those who ask which agent has a card
    trainer: str
    orphan_seconds: float
    confinement: Confinement = DEFAULT_CONFINEMENT
    environment: str = ""  # the packages that it has, by name; empty: the agent's
    command: tuple[str, ...] = (sys.executable, "-m", SPAWNER)  # an interpreter with these packages, and what it runs
    variables: tuple[tuple[str, str], ...] = ()  # of its environment, besides what ranks get of the agent's

    @classmethod
    def of(cls, settings: AgentSettings) -> SpawnerOptions:
        """The options of an agent's default spawner."""
        return cls(settings.name, settings.trainer, settings.orphan_seconds, settings.confinement)

    def words(self) -> list[str]:
        """The options as words of its command line."""
        words = ["--name", self.node, "--trainer", self.trainer, "--orphan-seconds", str(self.orphan_seconds)]
        words += ["--environment", self.environment] if self.environment else []
        words += ["--rank-umask", f"{self.confinement.umask:o}"]
        words += ["--shielded"] if self.confinement.shielded else []
        if self.confinement.memory_limit is not None and self.confinement.groups is not None:
            words += ["--memory-limit", str(self.confinement.memory_limit), "--memory-groups", str(self.confinement.groups)]
        return words if self.confinement.run_as is None else [*words, "--run-as", self.confinement.run_as]


class Supervisor:
    """Keeps a spawner running; the one of an environment runs once, since a job's packages may be what ends it.

    `on_process_list(process_list, first)` gets each list; `first` on each new connection, when the list is complete."""

    def __init__(
        self,
        folder: AgentFolder,
        options: SpawnerOptions,
        locks: CardLocks,
        on_process_list: Callable[[ProcessList, bool], None],
        process: subprocess.Popen[bytes] | None = None,
    ) -> None:
        """Make a supervisor. `process`: a spawner that was started already."""
        self._folder, self._place = folder, folder.spawner(options.environment)
        self._options = options
        self._locks = locks
        self._on_process_list = on_process_list
        self._writer: asyncio.StreamWriter | None = None
        self._process = process  # None where a predecessor started it
        self._pid: int | None = None
        self._start_timeout = ENVIRONMENT_TIMEOUT_SECONDS if options.environment else START_TIMEOUT_SECONDS
        self.failure: str | None = None  # why the spawner of an environment could not be started
        self.failed_by_itself = False  # it ended with an exit code, as it would with these packages again
        self._ending = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def is_ending(self) -> bool:
        """Whether the spawner takes no more orders, and no other follows it."""
        return self._ending.is_set() or self._ended.is_set()

    def send(self, message: ToSpawner) -> bool:
        """Send a message. Returns False while there is no spawner: send it again after its first process list."""
        if self._writer is None or self._writer.is_closing():
            return False
        self._writer.write(encode_to_spawner(message))
        return True

    async def shut_down(self, grace_seconds: float) -> None:
        """End all ranks, then the spawner; returns when it is gone. `run` must be running."""
        self._ending.set()
        if self._writer is not None:
            self._writer.write(encode_to_spawner(Shutdown(grace_seconds=grace_seconds)))
        elif self._process is not None:  # it does not listen yet, so it has no ranks
            self._process.kill()
            await asyncio.to_thread(self._process.wait, EXIT_TIMEOUT_SECONDS)
        await self._ended.wait()

    def kill(self) -> None:
        """Kill the spawner; its ranks die with it."""
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    async def run(self) -> None:
        backoff = Backoff(FIRST_RESTART_SECONDS, LONGEST_RESTART_SECONDS)
        while not self._ending.is_set():
            try:
                reader, self._writer = await self._connect()
            except SpawnerStartError as error:
                if self._ending.is_set():
                    break
                if self._options.environment:
                    self.failure, self.failed_by_itself = str(error), error.by_itself
                    break
                log.error("%s; trying again", error)
                await backoff.pause()
                continue
            backoff.reset()
            try:
                await self._listen(reader)
            finally:
                self._writer.close()
                self._writer = None
            gone = await self._is_gone()
            if gone and self._options.environment:
                break
            if gone and not self._ending.is_set():
                log.error("the spawner is gone, and its ranks with it: starting another")
        self._ended.set()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            async with asyncio.timeout(self._start_timeout):
                while not self._ending.is_set():
                    try:
                        return await asyncio.open_unix_connection(self._place.socket, limit=ROSTER_LIMIT_BYTES)
                    except (FileNotFoundError, ConnectionRefusedError):
                        self._ensure_started()
                    await asyncio.sleep(CONNECT_POLL_SECONDS)
        except TimeoutError:
            raise SpawnerStartError(f"no spawner after {self._start_timeout:g} s; see {self._folder.spawner_log}") from None
        raise SpawnerStartError("the agent is leaving")

    def _ensure_started(self) -> None:
        """Start a spawner unless ours is starting. Where another one holds the lock, ours ends at once without harm."""
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            self._process = None
            if code != 0:
                raise SpawnerStartError(f"the spawner exited with code {code}; see {self._folder.spawner_log}", by_itself=code > 0)
        if not self._options.command:
            raise SpawnerStartError(f"the spawner {self._options.environment} of the agent before has ended")
        try:
            locks = self._locks.renew()
        except CardTakenError as error:
            raise SpawnerStartError(str(error)) from error
        try:
            self._process = start_spawner(self._folder, self._options, locks)
        except OSError as error:
            raise SpawnerStartError(f"the spawner cannot be started: {error}") from error

    async def _is_gone(self) -> bool:
        """Whether the spawner has ended. After the end of its connection a process still takes a moment to end."""
        gone = self._pid is None or await wait_for_exit(self._pid, EXIT_TIMEOUT_SECONDS)
        if not gone:
            log.warning("the spawner (pid %d) closed its connection but lives on, with its ranks: connecting again", self._pid)
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        return gone

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        first = True
        try:
            async for line in reader:
                process_list = decode_process_list(line)
                self._pid = process_list.spawner_pid
                self._on_process_list(process_list, first)
                first = False
        except (ConnectionError, msgspec.DecodeError, ValueError) as error:
            log.warning("lost the connection to the spawner: %s", error)


def start_spawner(folder: AgentFolder, options: SpawnerOptions, locks: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Start a spawner in a session of its own, so that neither the agent's terminal nor its death reaches the spawner. Ranks inherit its
    environment. `locks`: descriptors of the locks of cards, which it holds as long as it lives."""
    command = [*options.command, "--data", str(folder.path), *options.words()]
    variables = inherited_environment(os.environ, options.confinement.pass_environment) | dict(options.variables)
    with open(folder.spawner_log, "ab") as output:
        return subprocess.Popen(
            [*command, *(["--card-locks", ",".join(map(str, locks))] if locks else [])],
            cwd=ROOT,
            env=variables | {AGENT_DATA_VARIABLE: str(folder.path)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=locks,
        )


@contextlib.contextmanager
def handlers_put_off(numbers: Sequence[signal.Signals]) -> Iterator[None]:
    """Let the handlers of these signals run once the block has ended. The signals are not blocked: a program that is started in the block would
    inherit that."""
    came: list[int] = []
    handlers = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for each in came:
            signal.raise_signal(each)


class EarlySpawner:
    """The spawner of an agent that has yet to join, started at once: it takes seconds to load torch, and the coordinator may be starting too.

    It ends with the block unless the agent has taken it over. An agent that has joined before may find one, and starts none here."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, settings: AgentSettings, folder: AgentFolder, locks: CardLocks) -> None:
        """Start it. Signals that end this process wait until the spawner is known, which would outlive it."""
        if not folder.credential.exists():
            with handlers_put_off(LEAVING_SIGNALS):
                self._process = start_spawner(folder, SpawnerOptions.of(settings), locks.renew())

    def hand_over(self) -> subprocess.Popen[bytes] | None:
        """Return the process to the supervisor that keeps it from now on; None: there is none."""
        process, self._process = self._process, None
        return process

    def end(self) -> None:
        """End it; it has no ranks. May be called by a signal's handler, whatever that has interrupted: `Popen.wait` has a lock."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._process.pid, signal.SIGKILL)
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)

    def __enter__(self) -> EarlySpawner:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        if self._process is not None:
            self._process.wait()


async def wait_for_exit(pid: int, timeout: float) -> bool:
    """Wait for the end of any process, not only of a child."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(await asyncio.to_thread(poll.poll, timeout * 1000))
    finally:
        os.close(descriptor)
