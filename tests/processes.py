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


def command_line(process: psutil.Process) -> list[str]:
    """Empty of one that has ended since it was found."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """Those that end meanwhile, as ranks do with their spawner, are what is wanted."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def is_pid_alive(pid: int) -> bool:
    try:
        return is_alive(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False
