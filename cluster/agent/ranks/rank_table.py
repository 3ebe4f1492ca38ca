"""The ranks of this node as far as the agent knows: from its own orders, the spawner's process lists, the ranks' messages, and the disk."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from paceline.cluster.agent.folders import AgentFolder, reclaim, set_aside
from paceline.cluster.agent.isolation import Isolation
from paceline.cluster.agent.processes import abandoned_members, send_signal
from paceline.cluster.agent.ranks import exits
from paceline.cluster.agent.ranks.rank_claims import bounded_failure, bounded_stall
from paceline.cluster.agent.ranks.rank_link import Said
from paceline.cluster.agent.ranks.ranks import ExitCause, RankPhase, RankRecord
from paceline.cluster.agent.spawner_link import ExitStatus, ProcessList
from paceline.cluster.protocol import RankKey
from paceline.monitoring.files import read_file, write_durably
from paceline.training.link import Broken, FailureReport, Joined, Moving, Parked, RankHello, RankOrder, Stalled, decode_order
from paceline.training.rank_folder import RankFolder

MAX_ORDER_BYTES = 64 << 20

log = logging.getLogger(__name__)


class RankTable:
    def __init__(self, folder: AgentFolder, isolation: Isolation | None = None) -> None:
        self._folder = folder
        self._isolation = isolation or Isolation()
        self._ranks: dict[RankKey, RankRecord] = {}
        self.not_applied = 0  # ranks that the last process list could not be applied to

    @property
    def ranks(self) -> Mapping[RankKey, RankRecord]:
        return MappingProxyType(self._ranks)

    def jobs(self) -> set[str]:
        """The ids of the jobs that have ranks here, ended ones included."""
        return {key.job_id for key in self._ranks}

    def load(self) -> None:
        """Take over the ranks of a previous agent. The spawner's first process list tells which of them still live. Orders of ranks that have not started
        are removed, since they would keep their jobs' folders: where such a rank is still wanted, it is started anew."""
        for path in sorted(self._folder.jobs.glob("*/g*/rank*/order.json")):
            order = _read_order(path)
            if order is None:
                continue
            if has_started(order):
                rank = RankRecord(order=order, phase=RankPhase.ALIVE, joined=_has_metrics(order), entered=order.world.birth is None)
                self._ranks[rank.key] = rank
            else:
                with self._isolation.of(f"{path}, of a rank that has not started"):
                    path.unlink()
        for rank in list(self._ranks.values()):
            for key in self.earlier(rank.key):
                self.change(key, phase=RankPhase.MOVED)

    def add(self, order: RankOrder) -> RankRecord:
        rank = RankRecord(order=order)
        self._ranks[rank.key] = rank
        return rank

    def move(self, key: RankKey, order: RankOrder) -> RankRecord:
        """Record the process known by `key` under a new order from now on."""
        old = self._ranks[key]
        self.change(key, phase=RankPhase.MOVED)
        rank = RankRecord(
            order=order,
            phase=RankPhase.ALIVE,
            pid=old.pid,
            parked=old.parked and order.world.parked,
            step=old.step,
            total_steps=old.total_steps,
            entered=False,
        )
        self._ranks[rank.key] = rank
        return rank

    def mark_exited(self, key: RankKey | None, order: RankOrder) -> None:
        """Record a place whose process has ended before it could take it; how the process ended is reported in this place too."""
        ended = self._ranks[key] if key is not None else None
        message = "the process that was to take this place has ended"
        self.refuse(self.add(order).key, FailureReport(kind="exit", rank=order.world.rank, message=message, time=time.time()))
        if ended is not None and ended.ending is not None:
            self.change(RankKey.of(order.world), pid=ended.pid, ending=ended.ending)

    def earlier(self, key: RankKey) -> list[RankKey]:
        """The earlier places of this rank's process, newest first."""
        rank = self._ranks.get(key)
        if rank is None:
            return []
        mine = [each.key for each in self._ranks.values() if each.process == rank.process and each.key.generation < key.generation]
        return sorted(mine, key=lambda each: each.generation, reverse=True)

    def _note_stall(self, rank: RankRecord, stall: Stalled | None, now: float) -> None:
        """Record the stall under the newest place of this process, which alone is looked at. Where that is another place than the
        reporting one, ranks have other numbers there, so `unanswered` is cleared."""
        newest = max((each.key for each in self._ranks.values() if each.process == rank.process), key=lambda key: key.generation)
        if stall is not None and newest != rank.key:
            stall = msgspec.structs.replace(stall, unanswered=())
        self.change(newest, stall=stall, last_news=now)

    def pending_moves(self, process_list: ProcessList) -> list[tuple[RankKey, RankRecord]]:
        """The processes that the spawner still knows by an earlier key."""
        living = dict(process_list.ranks)
        alive = [rank for rank in self._ranks.values() if rank.phase is RankPhase.ALIVE and rank.key not in living]
        return [(key, rank) for rank in alive for key in self.earlier(rank.key) if key in living]

    def forget(self, key: RankKey) -> None:
        del self._ranks[key]

    def change(self, key: RankKey, **changes: Any) -> None:
        self._ranks[key] = msgspec.structs.replace(self._ranks[key], **changes)

    def knows(self, process: RankKey) -> bool:
        """Whether a process that was started with this key has a place here."""
        return any(rank.process == process for rank in self._ranks.values())

    def on_message(self, key: RankKey, message: Said, now: float) -> bool:
        """Record a message of a rank. Returns True if it changes the rank's state. `now` is monotonic."""
        rank = self._ranks.get(key)
        if rank is None:
            return False
        if isinstance(message, RankHello):
            self.change(key, entered=True, stall=None)  # if it still is, it says so next
            return not rank.entered or rank.stall is not None
        if isinstance(message, Parked):
            self.change(key, parked=True, last_news=now)
            return not rank.parked
        if isinstance(message, Stalled | Moving):
            self._note_stall(rank, bounded_stall(message) if isinstance(message, Stalled) else None, now)
            return True
        if isinstance(message, Broken):
            self.change(key, broken=bounded_failure(message.failure), stall=None, step=max(rank.step, message.step), last_news=now)
            return rank.broken is None
        if isinstance(message, Joined):  # which may be further back than where its process has been
            self.change(key, joined=True, step=message.step, total_steps=message.total_steps, last_news=now)
        else:
            self.change(key, joined=True, step=max(rank.step, message.step), last_news=now)
        return not rank.joined

    def refuse(self, key: RankKey, failure: FailureReport, *, drained: bool = True) -> None:
        """Record a rank that could not be started. `drained`: it has left nothing that is still to be sent."""
        log.error("rank %s: %s", key, failure.message)
        ending = ExitCause(outcome="failed", time=failure.time, failure=bounded_failure(failure))
        self.change(key, phase=RankPhase.EXITED, ending=ending, drained=drained)

    def apply(self, process_list: ProcessList, *, first: bool, spawner: str = "") -> list[RankKey]:
        """Apply a process list of the spawner of this name; `first`: of a new connection, so that it is complete. Returns the ranks that turn
        out to have exited.

        A rank whose end cannot be read is left as it was, and counted by `not_applied`."""
        living = dict(process_list.ranks)
        exited: list[RankKey] = []
        self.not_applied = 0
        for key, rank in list(self._ranks.items()):
            if rank.phase is not RankPhase.ALIVE or rank.order.interpreter.spawner != spawner:
                continue
            self.not_applied += 1
            with self._isolation.of(f"rank {key}"):
                if key in living:
                    self.change(key, pid=living[key], suspended=key in process_list.suspended)
                elif not any(mate in living for mate in self.earlier(key)) and self._has_exited(rank, first=first):
                    exited.append(key)
                self.not_applied -= 1
        return exited

    def _has_exited(self, rank: RankRecord, *, first: bool) -> bool:
        folder = RankFolder.at(Path(rank.order.folder))
        if first and has_started(rank.order) and exits.read_exit_status(folder) is None:
            self._mark_exited_with_spawner(rank, folder)
        earlier = [RankFolder.at(Path(self._ranks[key].order.folder)) for key in self.earlier(rank.key)]
        ending = exits.read_exit_cause(folder, earlier, rank.order.world, is_script=rank.is_script, step=rank.step)
        if ending is None:
            return False  # the order and the list have crossed
        self.change(rank.key, phase=RankPhase.EXITED, pid=rank.pid or ending_pid(folder), ending=ending)
        return True

    def _mark_exited_with_spawner(self, rank: RankRecord, folder: RankFolder) -> None:
        """Record that PR_SET_PDEATHSIG killed a rank with its spawner: no process was left to call waitpid."""
        pid = rank.pid or 0
        started = RankFolder(self._folder.path, *rank.process)
        send_signal(abandoned_members(pid, str(started.path), str(self._folder.path)), signal.SIGKILL)
        status = ExitStatus(pid=pid, exit_code=None, signal=signal.SIGKILL.name, time=time.time())
        reclaim(folder.path)
        write_durably(folder.exit_status, msgspec.json.encode(status))

    def unknown_ranks(self, process_list: ProcessList) -> list[RankKey]:
        """Living ranks without an order here: the rest of a data folder that was tampered with."""
        return [key for key, _ in process_list.ranks if key not in self._ranks]


def has_started(order: RankOrder) -> bool:
    """Whether the spawner has got the order of a rank: it makes the output file before it forks."""
    folder = RankFolder.at(Path(order.folder))
    if folder.preparing.exists():
        return False
    return folder.output.exists() or folder.exit_status.exists()


def ending_pid(folder: RankFolder) -> int | None:
    status = exits.read_exit_status(folder)
    return status.pid or None if status else None


def _read_order(path: Path) -> RankOrder | None:
    try:
        order = decode_order(read_file(path, MAX_ORDER_BYTES))
        if Path(order.folder) != path.parent or path.lstat().st_uid != os.geteuid():  # a rank may write into its folder
            raise ValueError(f"no order of this agent's: it belongs to user {path.lstat().st_uid} and is for {order.folder}")
        return order
    except ValueError as error:
        set_aside(path, error)
    except OSError as error:
        log.error("%s cannot be read, and its rank is left alone: %s", path, error)
    return None


def _has_metrics(order: RankOrder) -> bool:
    metrics = RankFolder.at(Path(order.folder)).metrics
    return metrics.exists() and metrics.stat().st_size > 0
