"""Finding and ending every process of a rank, from /proc. Linux only, as are sessions and PR_SET_PDEATHSIG.

A rank leads a session of its own; most of what it starts stays in it. What leaves the session (a daemon) still carries
the rank's folder in its environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

from distributed.env import RANK_FOLDER

AGENT_DATA_VARIABLE = "PACELINE_AGENT_DATA"

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_MAX_SWEEPS = 20  # a process may fork while it is being killed; each sweep finds what the last one missed


def prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")


def members(leader: int, folder: str) -> list[int]:
    """Every living process of the rank with pid `leader`, the rank itself included."""
    mine = f"{RANK_FOLDER}={folder}".encode()
    return [pid for pid in _processes() if _session(pid) == leader or mine in _environment(pid)]


def abandoned_members(leader: int, folder: str, agent_data: str) -> list[int]:
    """The same for a rank whose spawner is dead: `leader` may by now be somebody else's pid, so each must carry our marks."""
    folder_mark = f"{RANK_FOLDER}={folder}".encode()
    data_mark = f"{AGENT_DATA_VARIABLE}={agent_data}".encode()
    return [
        pid
        for pid in _processes()
        if folder_mark in (environment := _environment(pid)) or (data_mark in environment and _session(pid) == leader)
    ]


def send_signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_strays(leader: int, folder: str) -> None:
    """SIGKILL whatever a rank that has exited left running."""
    for _ in range(_MAX_SWEEPS):
        strays = members(leader, folder)
        if not strays:
            return
        send_signal(strays, signal.SIGKILL)


def out_of_memory_kills() -> int:
    """How often the kernel's out-of-memory killer has struck in this control group, and on this machine."""
    return sum(_count(path) for path in (*_memory_event_files(), Path("/proc/vmstat")))


def _memory_event_files() -> Iterator[Path]:
    for line in _read(Path("/proc/self/cgroup")).decode().splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            yield Path(f"/sys/fs/cgroup{group}/memory.events")
        elif "memory" in controllers.split(","):
            yield Path(f"/sys/fs/cgroup/memory{group}/memory.oom_control")


def _count(path: Path) -> int:
    found = re.search(rb"^oom_kill (\d+)$", _read(path), re.MULTILINE)
    return int(found.group(1)) if found else 0


def _processes() -> list[int]:
    own = os.getpid()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own]


def _session(pid: int) -> int | None:
    """The session of a living process; None for one that is gone or a zombie."""
    stat = _read(Path(f"/proc/{pid}/stat"))
    fields = stat[stat.rfind(b")") + 2 :].split()  # the name in brackets may itself hold spaces
    return int(fields[3]) if fields and fields[0] not in (b"Z", b"X") else None


def _environment(pid: int) -> list[bytes]:
    return _read(Path(f"/proc/{pid}/environ")).split(b"\0")


def _read(path: Path) -> bytes:
    """The file, or nothing where the process is gone, is another user's, or the kernel has no such file."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
