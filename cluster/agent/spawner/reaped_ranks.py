"""Ranks between waitpid and their `exit.json`: how each has ended, and the writing of it."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from paceline.cluster.agent.folders import reclaim, set_aside
from paceline.cluster.agent.ranks.exits import read_exit_status
from paceline.cluster.agent.ranks.memory_kills import MemoryKills
from paceline.cluster.agent.spawner.live_rank import CRASHES, LiveRank
from paceline.cluster.agent.spawner.log import RepeatedErrors
from paceline.cluster.agent.spawner_link import ExitStatus, Move
from paceline.cluster.protocol import RankKey
from paceline.monitoring.files import write_durably
from paceline.training.link import RankOrder
from paceline.training.rank_folder import RankFolder


@dataclass(frozen=True)
class ReapedRank:
    """A rank that has ended, and of which that is not on disk yet."""

    order: RankOrder
    status: ExitStatus


class ReapedRanks:
    """The ranks of a spawner that have ended, and whose `exit.json` is not written yet."""

    def __init__(self, repeated_errors: RepeatedErrors) -> None:
        self._ranks: dict[RankKey, ReapedRank] = {}
        self._repeated_errors = repeated_errors
        self.memory_kills = MemoryKills()

    def __contains__(self, key: RankKey) -> bool:
        return key in self._ranks

    def __len__(self) -> int:
        return len(self._ranks)

    def pids(self) -> dict[RankKey, int]:
        """The pids of the processes that these ranks were."""
        return {key: rank.status.pid for key, rank in self._ranks.items()}

    def add_exited(self, key: RankKey, rank: LiveRank, code: int, *, limit_struck: bool) -> None:
        """Add a rank with this exit code, negative for a signal. `limit_struck`: its control group had reached its limit of memory."""
        status = ExitStatus(
            pid=rank.pid,
            exit_code=code if code >= 0 else None,
            signal=name_of(-code) if code < 0 else None,
            time=time.time(),
            ordered=rank.was_told and -code not in CRASHES,
            out_of_memory=code == -signal.SIGKILL and not rank.killed and (limit_struck or self.memory_kills.has_struck()),
            killed_after=rank.grace if rank.killed else None,
        )
        self._ranks[key] = ReapedRank(rank.order, status)

    def add_not_started(self, key: RankKey, order: RankOrder) -> None:
        """Add a rank for which there never was a process."""
        self._ranks[key] = ReapedRank(order, _unknown_status())

    def add_moved(self, key: RankKey, move: Move) -> None:
        """Add the new place of a rank that ended before it could move, with its status in the old one."""
        known = self._ranks[move.key].status if move.key in self._ranks else read_exit_status(RankFolder.at(Path(move.folder)))
        self._ranks[key] = ReapedRank(move.order, known or _unknown_status())

    def record(self) -> bool:
        """Write each `exit.json`, and drop the ranks whose file is written. Returns whether there are any. A full disk delays that; it
        must not end the spawner, and all ranks with it."""
        recorded = [key for key, rank in self._ranks.items() if self._write(rank)]
        for key in recorded:
            del self._ranks[key]
        return bool(recorded)

    def _write(self, rank: ReapedRank) -> bool:
        path = RankFolder.at(Path(rank.order.folder)).exit_status
        try:
            reclaim(path.parent)
            if path.is_dir() and not path.is_symlink():  # the rank's doing: it must not keep its own end from being told
                set_aside(path, "a folder, not a file")
            write_durably(path, msgspec.json.encode(rank.status))
        except OSError as error:
            self._repeated_errors.write_once(f"cannot write {path}: {error.strerror}; trying again")
            return False
        return True


def name_of(number: int) -> str:
    """The name of a signal: SIGKILL, SIGRTMIN+1."""
    try:
        return signal.Signals(number).name
    except ValueError:  # of the real-time signals, the first and the last alone have one
        return f"SIGRTMIN{number - signal.SIGRTMIN:+d}"


def _unknown_status() -> ExitStatus:
    return ExitStatus(pid=0, exit_code=None, signal=None, time=time.time())
