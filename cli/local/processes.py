"""Background processes: started in a session of their own, recorded, and stopped only when they are still the same ones.

A pid alone proves nothing: another process may have got it. A record therefore holds its birth too, which no clock changes. Processes that the
recorded ones have started (spawners, ranks) are found by the mark in their environment, which children inherit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from paceline.cli.local.layout import MARK, Layout
from paceline.cli.settings import LOG_FILE, child_environment
from paceline.location import ROOT
from paceline.monitoring.files import write_durably

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: For records without a birth: those of an older version, or where there is no /proc.
START_TIME_TOLERANCE_S = 1.0
STOP_GRACE_S = 12.0
SWEEP_GRACE_S = 3.0
POLL_S = 0.02
LOG_TAIL_LINES = 12


class Record(msgspec.Struct, frozen=True):
    name: str
    pid: int
    started_at: float
    command: list[str]
    birth: str = ""
    ends_on: int = signal.SIGTERM


@dataclass(frozen=True)
class BackgroundProgram:
    """A program to run as a background process."""

    name: str
    arguments: Sequence[str]  # of this Python
    environment: dict[str, str]
    umask: int = -1  # of the process; -1: that of whoever starts it
    ends_on: signal.Signals = signal.SIGTERM  # what `stop` sends it
    descriptors: tuple[int, ...] = ()  # open files that it gets under the same numbers


class _Detached(subprocess.Popen[bytes]):
    """A process that is meant to outlive its handle: dropping the handle is no mistake to warn of."""

    def __del__(self) -> None:
        return


def start(layout: Layout, program: BackgroundProgram) -> Record:
    layout.create()
    command = [sys.executable, *program.arguments]
    own = {MARK: layout.mark, "PYTHONUNBUFFERED": "1", LOG_FILE: str(layout.log(program.name))}
    environment = child_environment(**program.environment, **own)
    with open(layout.log(program.name), "ab", opener=_private) as log:
        process = _Detached(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            umask=program.umask,
            pass_fds=program.descriptors,
        )
    born = psutil.Process(process.pid).create_time()
    record = Record(program.name, process.pid, born, command, _birth(process.pid), program.ends_on)
    write_durably(layout.record(program.name), msgspec.json.encode(record))  # others read it, also while it is written
    return record


def _private(path: str, flags: int) -> int:
    """An opener that makes an older, readable file private."""
    descriptor = os.open(path, flags, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def recorded(layout: Layout) -> list[Record]:
    """The processes that were started and not yet stopped, dead or alive."""
    paths = sorted(layout.run.glob("*.json")) if layout.run.is_dir() else []
    return [msgspec.json.decode(path.read_bytes(), type=Record) for path in paths]


def find(record: Record) -> psutil.Process | None:
    """The recorded process if it lives: the same pid and birth, not a zombie."""
    try:
        process = psutil.Process(record.pid)
        return process if _is_same(process, record) and _lives(process) else None
    except psutil.NoSuchProcess:
        return None


def _is_same(process: psutil.Process, record: Record) -> bool:
    if record.birth:
        return record.birth == _birth(process.pid)
    return abs(process.create_time() - record.started_at) <= START_TIME_TOLERANCE_S


def _birth(pid: int) -> str:
    """The boot of this machine, and the process's start in ticks since then; empty where there is no such process, or no /proc."""
    try:
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        return f"{BOOT_ID.read_text().strip()}/{ticks}"
    except OSError:
        return ""


def alive(layout: Layout, name: str) -> bool:
    return any(record.name == name and find(record) is not None for record in recorded(layout))


def stop(layout: Layout, records: Iterable[Record]) -> None:
    """Ask these processes to end, together; kill those that have not after STOP_GRACE_S, which begins once the last rank had its time to
    save; forget them."""
    chosen = list(records)
    notes = [layout.leaving(record.name) for record in chosen]
    _end([(process, record.ends_on) for record in chosen if (process := find(record)) is not None], STOP_GRACE_S, notes)
    for record in chosen:
        layout.record(record.name).unlink(missing_ok=True)


def sweep(layout: Layout) -> int:
    """End all processes that still carry this stack's mark; returns how many there were."""
    left = marked(layout)
    _end([(process, signal.SIGTERM) for process in left], SWEEP_GRACE_S)
    return len(left)


def kill_marked(layout: Layout) -> None:
    """Kill all processes with this stack's mark, without the time to save that `stop` and `sweep` give."""
    for process in marked(layout):
        _signal(process, signal.SIGKILL)


def marked(layout: Layout) -> list[psutil.Process]:
    """Living processes with this stack's mark, other than the calling one and its parents."""
    spared = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    return [process for process in all_processes() if process.pid not in spared and _has_mark(process, layout.mark)]


def all_processes() -> list[psutil.Process]:
    """The processes of this machine, each as it is now. `psutil.process_iter` by itself hands out the objects of an earlier look again: where another
    process has taken a pid since, its object reads the new process, says that it has ended, and refuses to signal it."""
    psutil.process_iter.cache_clear()
    return list(psutil.process_iter())


def log_tail(layout: Layout, name: str) -> str:
    lines = layout.log(name).read_text(errors="replace").splitlines() if layout.log(name).exists() else []
    return "\n".join(f"  | {line}" for line in lines[-LOG_TAIL_LINES:])


def _has_mark(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(MARK) == mark and _lives(process)
    except (psutil.Error, OSError):
        return False  # gone meanwhile, or another user's, which is not ours to end


def _end(processes: list[tuple[psutil.Process, int]], grace: float, notes: Sequence[Path] = ()) -> None:
    """Send each process its signal, and SIGKILL to those that outlive the grace."""
    for process, number in processes:
        _signal(process, number)
    stubborn = _outliving([process for process, _ in processes], grace)
    while stubborn and (left := max(map(_noted_time, notes), default=0.0) + grace - time.time()) > 0:
        stubborn = _outliving(stubborn, left)
    for process in stubborn:
        _signal(process, signal.SIGKILL)
    _outliving(stubborn, SWEEP_GRACE_S)


def _outliving(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """The processes that still live. A zombie has ended: its parent may be busy waiting for this process."""
    deadline = time.monotonic() + seconds
    while (left := [process for process in processes if _lives(process)]) and time.monotonic() < deadline:
        threading.Event().wait(POLL_S)
    return left


def _noted_time(note: Path) -> float:
    """The time until which an agent's ranks may take to end, from its own note; 0: it has left none."""
    try:
        return float(note.read_text())
    except (FileNotFoundError, ValueError):
        return 0.0


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return  # ended by itself: what was wanted
