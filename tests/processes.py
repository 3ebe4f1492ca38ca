"""Processes that end while a test looks at them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import psutil


def is_alive(process: psutil.Process) -> bool:
    """Whether the process runs: it has neither ended nor is it waiting to be reaped. It may end at any moment while this is asked."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def command_of(process: psutil.Process) -> list[str]:
    """The words of its command; none where it has ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """Those that end meanwhile, as ranks do with their spawner, are what is wanted."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def surroundings_of(process: psutil.Process) -> str:
    """Its command and its environment in one text; nothing where it has ended, or is somebody else's."""
    try:
        return " ".join([*process.cmdline(), *process.environ().values()])
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""


def resident_bytes(process: psutil.Process) -> int:
    """Nothing where it has ended."""
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def is_pid_alive(pid: int) -> bool:
    try:
        return is_alive(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False
