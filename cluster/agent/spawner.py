"""The spawner: the parent of a node's ranks. `python -m cluster.agent.spawner --data DIR`

A process of its own, in a session of its own, with torch imported and CUDA never touched: it forks a rank in tens of
milliseconds, reaps it, and writes what waitpid said to the rank's folder. It outlives its agent; the next agent connects
to the same socket and finds every rank as it was. Without an agent for `--orphan-seconds` it ends its ranks and itself.

One thread, one selector loop: a fork from a process with threads may copy a held lock.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import importlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import msgspec

from cluster.agent.exits import read_exit_status
from cluster.agent.folders import AgentFolder
from cluster.agent.processes import PR_SET_CHILD_SUBREAPER, kill_strays, members, out_of_memory_kills, prctl, send_signal
from cluster.agent.rank_process import Trainer, become_rank
from cluster.agent.spawner_link import (
    ExitStatus,
    Move,
    RankKey,
    Roster,
    Shutdown,
    Spawn,
    Terminate,
    ToSpawner,
    decode_to_spawner,
    encode_line,
    key_of,
)
from monitoring.files import write_durably
from training.link import RankFolder, RankOrder

DEFAULT_TRAINER = "training.main"
DEFAULT_ORPHAN_SECONDS = 900.0
ORPHAN_GRACE_SECONDS = 10.0
STOP_SIGNAL_GRACE_SECONDS = 3.0
RECORD_RETRY_SECONDS = 1.0
#: A process that ends by one of these has broken by itself, whatever else it was told: it may take long to dump its core.
CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS})


@dataclass
class LiveRank:
    """A rank between fork and waitpid."""

    pid: int
    order: RankOrder
    mark: str  # the folder in its environment, and so in that of whatever it starts
    kill_at: float | None = None  # monotonic: SIGTERM was sent, SIGKILL follows
    killed: bool = False  # by us
    suspended: bool = False  # stopped by a signal, and not yet continued


@dataclass(frozen=True)
class End:
    """A rank between waitpid and its `exit.json`."""

    pid: int
    order: RankOrder
    status: ExitStatus


class Spawner:
    def __init__(self, listener: socket.socket, trainer: Trainer, orphan_seconds: float) -> None:
        self._listener = listener
        self._trainer = trainer
        self._orphan_seconds = orphan_seconds
        self._ranks: dict[RankKey, LiveRank] = {}
        self._ended: dict[RankKey, End] = {}
        self._agent: socket.socket | None = None
        self._unread = b""
        self._agent_left_at = time.monotonic()
        self._ending = False
        self._memory_kills = out_of_memory_kills()
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Serve until shut down, orphaned for too long, or stopped by SIGTERM, and the last rank is gone."""
        wakeup = self._wake_on_signals()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        while not self._ending or self._ranks or self._ended:
            for key, _ in self._selector.select(self._seconds_to_next_deadline()):
                key.data()
            self._reap()
            self._record_ends()
            self._kill_overdue()
            self._end_when_orphaned()
        wakeup.close()

    def _wake_on_signals(self) -> socket.socket:
        receiver, sender = socket.socketpair()
        receiver.setblocking(False)
        sender.setblocking(False)
        signal.set_wakeup_fd(sender.detach(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler must exist for the wake-up to be written
        signal.signal(signal.SIGTERM, lambda *_: self._shut_down(STOP_SIGNAL_GRACE_SECONDS))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._selector.register(receiver, selectors.EVENT_READ, lambda: receiver.recv(4096))
        return receiver

    def _seconds_to_next_deadline(self) -> float | None:
        deadlines = [rank.kill_at for rank in self._ranks.values() if rank.kill_at is not None and not rank.killed]
        if self._agent is None and not self._ending:
            deadlines.append(self._agent_left_at + self._orphan_seconds)
        if self._ended:
            deadlines.append(time.monotonic() + RECORD_RETRY_SECONDS)
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    # -- the agent's connection

    def _accept(self) -> None:
        self._hang_up()  # a newer agent takes over
        self._agent, _ = self._listener.accept()
        self._agent.setblocking(False)
        self._unread = b""
        self._selector.register(self._agent, selectors.EVENT_READ, self._receive)
        self._announce()

    def _receive(self) -> None:
        assert self._agent is not None
        try:
            received = self._agent.recv(1 << 20)
        except ConnectionError:
            received = b""
        *lines, self._unread = (self._unread + received).split(b"\n")
        try:
            messages = [decode_to_spawner(line) for line in lines]
        except msgspec.DecodeError as error:
            print(f"an agent that does not speak our protocol: {error}", flush=True)
            messages, received = [], b""
        for message in messages:
            self._obey(message)
        if not received:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._agent is not None:
            self._selector.unregister(self._agent)
            self._agent.close()
            self._agent = None
            self._agent_left_at = time.monotonic()

    def _announce(self) -> None:
        roster = Roster(
            spawner_pid=os.getpid(),
            ranks=tuple((key, rank.pid) for key, rank in (self._ranks | self._ended).items()),
            suspended=tuple(key for key, rank in self._ranks.items() if rank.suspended),
        )
        if self._agent is not None:
            try:
                self._agent.sendall(encode_line(roster))
            except (BlockingIOError, ConnectionError):  # an agent that does not read connects again and gets the whole roster
                self._hang_up()

    def _obey(self, message: ToSpawner) -> None:
        match message:
            case Spawn():
                self._spawn(message)
            case Move():
                self._move(message)
            case Terminate(key=key, grace_seconds=grace):
                self._terminate(key, grace)
            case Shutdown(grace_seconds=grace):
                self._shut_down(grace)

    # -- ranks

    def _spawn(self, spawn: Spawn) -> None:
        key, folder = key_of(spawn.order.world), RankFolder.at(Path(spawn.order.folder))
        if not self._ending and key not in self._ranks and key not in self._ended and not folder.exit_status.exists():
            self._fork(key, spawn)
        self._announce()

    def _fork(self, key: RankKey, spawn: Spawn) -> None:
        own_pid = os.getpid()
        try:
            RankFolder.at(Path(spawn.order.folder)).output.touch()  # whoever sees it knows that the order has arrived here
            pid = os.fork()
        except OSError as error:
            print(f"cannot start {key}: {error}", flush=True)
            self._ended[key] = End(0, spawn.order, ExitStatus(pid=0, exit_code=None, signal=None, time=time.time()))
            return
        if pid == 0:
            become_rank(spawn, self._trainer, own_pid)
        self._ranks[key] = LiveRank(pid, spawn.order, mark=spawn.order.folder)

    def _move(self, move: Move) -> None:
        key, folder = key_of(move.order.world), RankFolder.at(Path(move.order.folder))
        rank = self._ranks.pop(move.key, None)
        if rank is not None:
            with contextlib.suppress(OSError):  # a full disk: the rank itself, or its end, will make its mark
                folder.output.touch()
            rank.order = move.order
            self._ranks[key] = rank
        elif key not in self._ranks and key not in self._ended and not folder.exit_status.exists():
            status = self._status_of(move)
            self._ended[key] = End(status.pid, move.order, status)
        self._announce()

    def _status_of(self, move: Move) -> ExitStatus:
        """Of a rank that ended before it could move."""
        if move.key in self._ended:
            return self._ended[move.key].status
        unknown = ExitStatus(pid=0, exit_code=None, signal=None, time=time.time())
        return read_exit_status(RankFolder.at(Path(move.folder))) or unknown

    def _terminate(self, key: RankKey, grace_seconds: float) -> None:
        rank = self._ranks.get(key)
        if rank is None:
            return
        deadline = time.monotonic() + grace_seconds
        if rank.kill_at is None:
            send_signal(processes_of(rank), signal.SIGTERM)
        rank.kill_at = deadline if rank.kill_at is None else min(rank.kill_at, deadline)

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for rank in self._ranks.values():
            if rank.kill_at is not None and rank.kill_at <= now and not rank.killed:
                rank.killed = True
                send_signal(processes_of(rank), signal.SIGKILL)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):  # no child is left
            while (changed := os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)) != (0, 0):
                self._heed(*changed)

    def _heed(self, pid: int, status: int) -> None:
        key = next((key for key, rank in self._ranks.items() if rank.pid == pid), None)
        if key is None:
            return  # a stray that had become our child
        if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
            self._ranks[key].suspended = os.WIFSTOPPED(status)
            self._announce()
        else:
            self._bury(key, pid, status)

    def _bury(self, key: RankKey, pid: int, status: int) -> None:
        rank = self._ranks.pop(key)
        kill_strays(pid, rank.mark)
        self._ended[key] = End(pid, rank.order, self._exit_status(rank, os.waitstatus_to_exitcode(status)))

    def _record_ends(self) -> None:
        """Write each `exit.json`, then drop the rank from the roster. A full disk delays that; it must not end us, and all ranks."""
        recorded = [key for key, end in self._ended.items() if _record(end)]
        for key in recorded:
            del self._ended[key]
        if recorded:
            self._announce()

    def _exit_status(self, rank: LiveRank, code: int) -> ExitStatus:
        kills, before = out_of_memory_kills(), self._memory_kills
        self._memory_kills = kills
        return ExitStatus(
            pid=rank.pid,
            exit_code=code if code >= 0 else None,
            signal=signal.Signals(-code).name if code < 0 else None,
            time=time.time(),
            ordered=rank.kill_at is not None and -code not in CRASHES,
            out_of_memory=code == -signal.SIGKILL and not rank.killed and kills > before,
        )

    # -- the end

    def _shut_down(self, grace_seconds: float) -> None:
        self._ending = True
        for key in self._ranks:
            self._terminate(key, grace_seconds)

    def _end_when_orphaned(self) -> None:
        if self._agent is None and not self._ending and time.monotonic() >= self._agent_left_at + self._orphan_seconds:
            print(f"no agent for {self._orphan_seconds:g} s: ending {len(self._ranks)} ranks", flush=True)
            self._shut_down(ORPHAN_GRACE_SECONDS)


def processes_of(rank: LiveRank) -> list[int]:
    """Its own first: one that is stopped right after the fork leads no session and carries no mark yet, but until it is reaped its
    pid is nobody else's."""
    return [rank.pid, *(pid for pid in members(rank.pid, rank.mark) if pid != rank.pid)]


def _record(end: End) -> bool:
    path = RankFolder.at(Path(end.order.folder)).exit_status
    try:
        write_durably(path, msgspec.json.encode(end.status))
    except OSError as error:
        print(f"cannot write {path}: {error.strerror}; trying again", flush=True)
        return False
    return True


def lock(path: Path) -> IO[bytes] | None:
    """Hold `path` for the life of this process; None if another process holds it."""
    file = open(path, "ab")  # noqa: SIM115 - the lock lives as long as the file is open
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def listen(path: Path) -> socket.socket:
    """Who sees the path can connect: it gets its name last. The lock is ours, so whoever made an older one is dead."""
    unnamed = path.with_suffix(".new")
    unnamed.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(unnamed))
    unnamed.chmod(0o600)
    listener.listen()
    unnamed.rename(path)
    return listener


def load_trainer(module: str) -> Trainer:
    trainer = cast(Trainer, importlib.import_module(module))
    trainer.preload()
    gc.collect()
    gc.freeze()  # keeps the collector of each rank from touching, and so copying, the pages it shares with us
    return trainer


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="cluster.agent.spawner", description="Fork and reap the ranks of one node.")
    parser.add_argument("--data", type=Path, required=True, help="the agent's data folder")
    parser.add_argument("--trainer", default=DEFAULT_TRAINER, help="module with preload() and run_rank(order)")
    parser.add_argument("--orphan-seconds", type=float, default=DEFAULT_ORPHAN_SECONDS, help="how long to live without an agent")
    options = parser.parse_args(arguments)
    folder = AgentFolder(options.data)
    held = lock(folder.spawner_lock)
    if held is None:
        print(f"another spawner serves {folder.path}", flush=True)
        return 0
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # what a rank leaves behind becomes our child, not init's
    listener = listen(folder.spawner_socket)
    Spawner(listener, load_trainer(options.trainer), options.orphan_seconds).run()
    folder.spawner_socket.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
