"""What a fault does to processes. Each function returns the moment of its first blow, as the wall clock has it."""

from __future__ import annotations

import os
import signal
import time

import psutil

from paceline.cli.local.layout import Layout
from paceline.cli.local.processes import all_processes

AGENT = "paceline.cluster.agent.main"
GONE_TIMEOUT_S = 20.0


def kill_rank(pid: int) -> float:
    at = time.time()
    os.kill(pid, signal.SIGKILL)
    return at


def stop_rank(pid: int) -> float:
    """Stop a rank by SIGSTOP. The rank keeps its sockets and sends nothing more, so that its peers find out by waiting."""
    at = time.time()
    os.kill(pid, signal.SIGSTOP)
    return at


def kill_agent(layout: Layout, node: str) -> float:
    """Kill a node's agent; its ranks and their spawner live on."""
    return _kill([process for process in processes_of(layout, node) if _is_agent(process)])


def kill_node(layout: Layout, node: str) -> float:
    """Agent, spawner and ranks, the agent first, as when a machine loses power: none can tell of the others."""
    return _kill(sorted(processes_of(layout, node), key=lambda process: not _is_agent(process)))


def _kill(processes: list[psutil.Process]) -> float:
    """Kill the processes, and return once they are gone: the repair that follows must find them dead."""
    if not processes:
        raise ProcessLookupError("nothing to kill: no such process runs")
    at = time.time()
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue  # its parent's end has ended it
    psutil.wait_procs(processes, GONE_TIMEOUT_S)
    return at


def processes_of(layout: Layout, node: str) -> list[psutil.Process]:
    folder = str(layout.agent(node))
    return [process for process in all_processes() if _mentions(process, folder)]


def _mentions(process: psutil.Process, folder: str) -> bool:
    """On its command line or in its environment, as a whole path: local-1 is not local-10."""
    try:
        words = [*process.cmdline(), *process.environ().values(), process.cwd()]
        return any(word == folder or word.startswith(folder + "/") for word in words) and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
        return False  # gone meanwhile, or another user's


def _is_agent(process: psutil.Process) -> bool:
    try:
        return AGENT in process.cmdline()
    except psutil.NoSuchProcess:
        return False
