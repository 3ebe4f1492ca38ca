"""The spawner: the ancestor of a node's ranks, each below a shim of its own. `python -m paceline.cluster.agent.spawner --data DIR`

A process of its own, in a session of its own, with torch imported and CUDA never touched: it forks a rank in tens of
milliseconds, reaps it, and writes the result of waitpid to the rank's folder. It outlives its agent; the next agent connects
to the same socket and finds every rank as it was. Without an agent for `--orphan-seconds` it ends its ranks and itself.

One thread, one selector loop: a fork from a process with threads may copy a held lock. No exception in the loop ends it, and
neither does a full disk under its own log: with the spawner every rank would end.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import selectors
import signal
import socket
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from paceline.cluster.agent.card_locks import answer_for, dismiss_asker, send_with
from paceline.cluster.agent.memory_groups import MemoryGroups
from paceline.cluster.agent.processes import kill_strays
from paceline.cluster.agent.spawner.live_rank import LiveRank
from paceline.cluster.agent.spawner.log import RepeatedErrors, write_line
from paceline.cluster.agent.spawner.rank_process import ProcessLimits, TrainerModule, become_rank, make_output
from paceline.cluster.agent.spawner.reaped_ranks import ReapedRanks
from paceline.cluster.agent.spawner.shim import STOPPED, fork_rank
from paceline.cluster.agent.spawner.store_processes import StoreProcesses
from paceline.cluster.agent.spawner_link import (
    EndStore,
    Move,
    ProcessList,
    ServeStore,
    Shutdown,
    Spawn,
    Terminate,
    ToSpawner,
    decode_to_spawner,
)
from paceline.cluster.protocol import RankKey
from paceline.monitoring.lines import LineBuffer, encode_line
from paceline.monitoring.words import plural
from paceline.training.rank_folder import RankFolder

#: How often an ended rank's other programs are looked at, which may still save: their end need not wake the spawner.
LINGER_SECONDS = 0.1
RECORD_RETRY_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 3600.0  # of one look for what comes next: epoll takes no more than 24 days
#: After something was raised in the loop, which may be so at every turn.
FAILURE_REST_SECONDS = 0.1


class Spawner:
    def __init__(
        self,
        listener: socket.socket,
        trainer: TrainerModule,
        orphan_seconds: float,
        limits: ProcessLimits,
        groups: MemoryGroups | None = None,
        card_locks: Sequence[socket.socket] = (),
    ) -> None:
        self._listener = listener
        self._trainer = trainer
        self._orphan_seconds = orphan_seconds
        self._limits = limits  # of each rank, but for what is its own
        self._groups = groups
        self._card_locks = card_locks
        self._stores = StoreProcesses(trainer.serve_store, limits.account)
        self._ranks: dict[RankKey, LiveRank] = {}
        self._tags = itertools.count((os.getpid() << 32) + 1)  # not those of another spawner, which may be a rank's child
        self._repeated_errors = RepeatedErrors()
        self._unrecorded = ReapedRanks(self._repeated_errors)
        self._agent: socket.socket | None = None
        self._unread = LineBuffer()
        self._agent_left_at = time.monotonic()
        self._shutting_down = False
        self._signalled = False
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Serve until shut down, orphaned for too long, or stopped by SIGTERM, and the last rank is gone."""
        wakeup = self._wake_on_signals()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        for card_lock in self._card_locks:
            self._selector.register(card_lock, selectors.EVENT_READ, partial(dismiss_asker, card_lock))
        while not self._shutting_down or self._ranks or self._unrecorded:
            for key, _ in self._selector.select(self._seconds_to_next_deadline()):
                self._survive(key.data)
            for duty in (self._reap, self._kill_overdue, self._finish_lingering, self._record_ends, self._end_when_orphaned):
                self._survive(duty)
            self._survive(self._unrecorded.memory_kills.look)
        wakeup.close()

    def _survive(self, work: Callable[[], object]) -> None:
        """Run one duty of the loop. An exception is logged, and the loop goes on."""
        try:
            work()
        except Exception:  # noqa: BLE001 - we are the parent of all ranks
            self._repeated_errors.write_once(traceback.format_exc())
            time.sleep(FAILURE_REST_SECONDS)

    def _wake_on_signals(self) -> socket.socket:
        receiver, sender = socket.socketpair()
        receiver.setblocking(False)
        sender.setblocking(False)
        signal.set_wakeup_fd(sender.detach(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler must exist for the wake-up to be written
        signal.signal(signal.SIGTERM, lambda *_: self._on_sigterm())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._selector.register(receiver, selectors.EVENT_READ, lambda: receiver.recv(4096))
        return receiver

    def _seconds_to_next_deadline(self) -> float | None:
        deadlines = [rank.kill_at for rank in self._ranks.values() if rank.kill_at is not None and not rank.killed]
        if self._agent is None and not self._shutting_down:
            deadlines.append(self._agent_left_at + self._orphan_seconds)
        if self._unrecorded:
            deadlines.append(time.monotonic() + RECORD_RETRY_SECONDS)
        if self._ranks:
            deadlines.append(self._unrecorded.memory_kills.next_look)
        if any(rank.status is not None for rank in self._ranks.values()):
            deadlines.append(time.monotonic() + LINGER_SECONDS)
        return min(LONGEST_WAIT_SECONDS, max(0.0, min(deadlines) - time.monotonic())) if deadlines else None

    # -- the agent's connection

    def _accept(self) -> None:
        self._disconnect()  # a newer agent takes over
        self._agent, _ = self._listener.accept()
        self._agent.setblocking(False)
        self._unread = LineBuffer()
        self._selector.register(self._agent, selectors.EVENT_READ, self._receive)
        self._announce(self._card_locks)  # which were the agent's before, too

    def _receive(self) -> None:
        assert self._agent is not None
        try:
            received = self._agent.recv(1 << 20)
        except ConnectionError:
            received = b""
        try:
            messages = [decode_to_spawner(line) for line in self._unread.take(received)]
        except msgspec.DecodeError as error:
            write_line(f"an agent that does not speak our protocol: {error}")
            messages, received = [], b""
        for message in messages:
            try:
                self._handle(message)
            except Exception:  # noqa: BLE001 - one order's trouble must not end the parent of all other ranks
                write_line(f"cannot carry out {type(message).__name__}:\n{traceback.format_exc()}")
        if not received:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._agent is not None:
            self._selector.unregister(self._agent)
            self._agent.close()
            self._agent = None
            self._agent_left_at = time.monotonic()
            answer_for(self._card_locks)

    def _announce(self, locks: Sequence[socket.socket] = ()) -> None:
        process_list = ProcessList(
            spawner_pid=os.getpid(),
            ranks=tuple(({key: rank.pid for key, rank in self._ranks.items()} | self._unrecorded.pids()).items()),
            suspended=tuple(key for key, rank in self._ranks.items() if rank.suspended),
            stores=self._stores.stores(),
            runs_interpreters=True,
        )
        if self._agent is not None:
            try:
                send_with(self._agent, encode_line(process_list), locks)
            except (BlockingIOError, ConnectionError):  # an agent that does not read connects again and gets the whole roster
                self._disconnect()

    def _handle(self, message: ToSpawner) -> None:
        match message:
            case Spawn():
                self._spawn(message)
            case Move():
                self._move(message)
            case Terminate(key=key, grace_seconds=grace):
                self._terminate(key, grace)
            case ServeStore():
                self._stores.start(message)
                self._announce()
            case EndStore(key=generation):
                if self._stores.end(generation):
                    self._announce()
            case Shutdown(grace_seconds=grace):
                self._shut_down(grace)

    # -- ranks

    def _spawn(self, spawn: Spawn) -> None:
        key, folder = RankKey.of(spawn.order.world), RankFolder.at(Path(spawn.order.folder))
        if not self._shutting_down and key not in self._ranks and key not in self._unrecorded and not folder.exit_status.exists():
            self._fork(key, spawn)
        self._announce()

    def _fork(self, key: RankKey, spawn: Spawn) -> None:
        tag = next(self._tags)
        try:
            self._make_output(RankFolder.at(Path(spawn.order.folder)))  # its existence shows that the order has arrived here
            group = None if self._groups is None else self._groups.create(f"{key.job_id}-g{key.generation}-r{key.rank}")
            limits = replace(self._limits, tag=tag, group=group)
            forked = fork_rank(lambda shim_pid: become_rank(spawn, self._trainer, shim_pid, limits))
        except OSError as error:
            write_line(f"cannot start {key}: {error}")
            self._unrecorded.add_not_started(key, spawn.order)
            return
        rank = LiveRank(forked.pid, spawn.order, mark=spawn.order.folder, tag=tag, group=group, shim_pid=forked.shim_pid)
        self._ranks[key] = rank
        self._selector.register(forked.stops, selectors.EVENT_READ, partial(self._read_stops, rank, forked.stops))

    def _read_stops(self, rank: LiveRank, stops: int) -> None:
        told = os.read(stops, 4096)
        if told:
            rank.suspended = told.endswith(STOPPED)
            self._announce()
        else:  # the shim has ended, and so has the rank
            self._selector.unregister(stops)
            os.close(stops)

    def _make_output(self, folder: RankFolder) -> None:
        make_output(folder.output, self._limits.account)
        folder.preparing.unlink(missing_ok=True)

    def _move(self, move: Move) -> None:
        key, folder = RankKey.of(move.order.world), RankFolder.at(Path(move.order.folder))
        rank = self._ranks.pop(move.key, None)
        if rank is not None:
            with contextlib.suppress(OSError):  # a full disk: the rank itself, or its end, will make its mark
                self._make_output(folder)
            rank.order = move.order
            self._ranks[key] = rank
        elif key not in self._ranks and key not in self._unrecorded and not folder.exit_status.exists():
            self._unrecorded.add_moved(key, move)
        self._announce()

    def _terminate(self, key: RankKey, grace_seconds: float) -> None:
        rank = self._ranks.get(key)
        if rank is None:
            return
        if self._limits.shielded and not rank.is_script:
            grace_seconds = 0.0  # it ignores SIGTERM, and would have nothing to do at it
        rank.terminate(grace_seconds)

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for rank in self._ranks.values():
            if rank.kill_at is not None and rank.kill_at <= now and not rank.killed:
                rank.kill()

    def _finish_lingering(self) -> None:
        """Report ranks that have ended upon SIGTERM, once their programs have ended or were killed."""
        for key, rank in list(self._ranks.items()):
            if rank.status is not None and (rank.killed or not (rank.has_programs_left() or rank.may_be_signalled(time.monotonic()))):
                self._reap_one(key, rank.pid, rank.status)

    def _reap(self) -> None:
        self._mark_signalled()
        with contextlib.suppress(ChildProcessError):  # no child is left
            while (changed := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                self._on_child_exit(*changed)

    def _on_child_exit(self, pid: int, status: int) -> None:
        key = next((key for key, rank in self._ranks.items() if rank.pid == pid), None)
        if key is None:
            self._mark_other_exited(pid)
            return
        rank = self._ranks[key]
        rank.sigterm_at = time.monotonic() if self._limits.shielded and os.waitstatus_to_exitcode(status) == -signal.SIGTERM else None
        if (rank.was_told and not rank.killed) or rank.may_be_signalled(time.monotonic()):
            rank.status = status  # a shell ends at once, and what it runs may be saving
        else:
            self._reap_one(key, pid, status)

    def _mark_other_exited(self, pid: int) -> None:
        """Handle the end of a store's process, of a shim, or of a stray that had become a child of the spawner."""
        for rank in self._ranks.values():
            if rank.shim_pid == pid:
                rank.shim_pid = None
        if self._stores.mark_exited(pid):
            self._announce()

    def _reap_one(self, key: RankKey, pid: int, status: int) -> None:
        rank = self._ranks.pop(key)
        limit_struck = self._groups is not None and rank.group is not None and self._groups.end(rank.group)
        kill_strays(pid, rank.mark, rank.tag)
        self._unrecorded.add_exited(key, rank, os.waitstatus_to_exitcode(status), limit_struck=limit_struck)

    def _record_ends(self) -> None:
        if self._unrecorded.record():
            self._announce()

    # -- the end

    def _on_sigterm(self) -> None:
        self._signalled = self._limits.shielded
        if not self._limits.shielded:
            self._shut_down(math.inf)

    def _mark_signalled(self) -> None:
        """SIGTERM has come to this process, which leads a session: it has come to every process of the node (Slurm's scancel)."""
        signalled, self._signalled = self._signalled, False
        for rank in self._ranks.values() if signalled else ():
            rank.mark_signalled()

    def _shut_down(self, most_seconds: float) -> None:
        """End all ranks. Each has its own grace, of at most so many seconds."""
        self._shutting_down = True
        for key, rank in self._ranks.items():
            self._terminate(key, min(rank.own_grace, most_seconds))

    def _end_when_orphaned(self) -> None:
        if self._agent is None and not self._shutting_down and time.monotonic() >= self._agent_left_at + self._orphan_seconds:
            write_line(f"no agent for {self._orphan_seconds:g} s: ending {plural(len(self._ranks), 'rank')}")
            self._shut_down(math.inf)
