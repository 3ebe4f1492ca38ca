"""Finds the rank that writes an event file: by the process that the file's name gives, or that has it open. Nothing less counts, so that no
job gets another job's curves.

TensorBoard's writers (torch, TensorFlow, Lightning, Accelerate, transformers) name a file by time, host and process:
`events.out.tfevents.1795479225.host.22203.0`. tensorboardX leaves out the process, and keeps the file open.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.cluster.agent.curves.link import WatchedRank
from paceline.cluster.agent.processes import carries, session_of

MARK = ".tfevents."
#: The clock of a name counts whole seconds.
CLOCK_SECONDS = 2.0
#: Processes are looked for at most this part of the time, and every so often.
LOOK_SHARE = 0.02
LOOK_SECONDS = 2.0


@dataclass(frozen=True)
class Writer:
    """The writer of an event file, as far as the file's name tells."""

    time: float
    pid: int | None  # None: the name does not tell
    number: int  # of the file among those of the process
    here: bool  # the name is that of this host


def writer_of(name: str, host: str | None = None) -> Writer | None:
    """The writer that the name of an event file gives; None where it is no such name. `host` is this machine's name."""
    _, mark, rest = name.partition(MARK)
    when = re.match(r"(\d+)\.", rest)
    if not mark or when is None:
        return None
    host, rest = host or socket.gethostname(), rest[when.end() :]
    if rest != host and not rest.startswith(f"{host}."):
        return Writer(float(when[1]), None, 0, here=False)
    process = re.match(r"(\d+)(?:\.(\d+))?", rest[len(host) + 1 :])
    if process is None:
        return Writer(float(when[1]), None, 0, here=True)
    return Writer(float(when[1]), int(process[1]), int(process[2] or 0), here=True)


class Processes:
    """The processes of the ranks on this node, including those that have ended."""

    def __init__(self) -> None:
        self._ranks: dict[int, int] = {}  # by process
        self._leaders: dict[int, int] = {}  # by session
        self._folders: dict[str, int] = {}
        self._next_look = 0.0

    def update(self, ranks: Sequence[WatchedRank]) -> None:
        for each in ranks:
            self._folders[each.folder] = each.rank
            if each.pid is not None:
                self._ranks[each.pid] = each.rank
                if each.exited:  # its number may become another process's
                    self._leaders.pop(each.pid, None)
                else:
                    self._leaders[each.pid] = each.rank

    def look(self) -> None:
        """Note the processes that live now: a file may be found after its writer has ended."""
        began = time.monotonic()
        if began < self._next_look:
            return
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) not in self._ranks:
                rank = self._leaders.get(session_of(int(name)) or -1)
                if rank is not None:
                    self._ranks[int(name)] = rank
        took = time.monotonic() - began
        self._next_look = began + max(LOOK_SECONDS, took / LOOK_SHARE)

    def rank_of(self, pid: int) -> int | None:
        """The rank of a process in the rank's session, or of one that left the session and still carries the rank's folder in its
        environment."""
        if pid not in self._ranks:
            session = session_of(pid)
            rank = self._leaders.get(session) if session is not None else None
            if rank is None:
                rank = next((rank for folder, rank in self._folders.items() if carries(pid, folder)), None)
            if rank is not None:
                self._ranks[pid] = rank
        return self._ranks.get(pid)

    def open_files(self) -> Mapping[str, int]:
        """The event files that processes of the ranks have open: path -> rank."""
        found: dict[str, int] = {}
        for pid, rank in list(self._ranks.items()):
            with contextlib.suppress(OSError):  # gone meanwhile
                for number in os.listdir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        path = os.readlink(f"/proc/{pid}/fd/{number}")
                        if MARK in path:
                            found[path] = rank
        return found


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
