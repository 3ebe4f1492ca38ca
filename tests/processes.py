"""Processes that end while a test looks at them."""

from __future__ import annotations

import psutil


def is_alive(process: psutil.Process) -> bool:
    """Whether the process runs: it has neither ended nor is it waiting to be reaped. It may end at any moment while this is asked."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_pid_alive(pid: int) -> bool:
    try:
        return is_alive(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False
