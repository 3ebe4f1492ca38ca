"""A peer on this machine: its agents and workers as processes of their own, struck and healed the way ours are.

A member is one machine of the peer's: an agent, and the worker that the agent started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import psutil

from paceline.cli.local.processes import all_processes
from scripts.bench.peers.workload import FOLDER, MEMBER
from scripts.faults.history import Commit
from scripts.faults.tails import Tails
from scripts.steps import ROOT

STOP_TIMEOUT_S = 10.0
_decoder = msgspec.json.Decoder(Commit)


class Peer(Protocol):
    @property
    def name(self) -> str: ...

    def helpers(self) -> Sequence[Sequence[str]]:
        """Commands of what runs beside the members."""

    def command(self, member: str) -> Sequence[str]: ...

    def environment(self, member: str) -> Mapping[str, str]: ...


def diaries(folder: Path) -> Tails:
    """Return the tails of the files in which a peer's workers write down their steps."""
    return Tails(folder, "*.jsonl", _take)


def _take(_: Path, unread: bytes) -> tuple[list[Commit], int]:
    whole, newline, _torn = unread.rpartition(b"\n")
    return [_decoder.decode(line) for line in whole.splitlines()], len(whole + newline)


class Rig:
    """A peer's processes. Everything it starts carries the folder in its environment, and so is found again at the end."""

    def __init__(self, peer: Peer, folder: Path, members: Sequence[str]) -> None:
        self.peer, self.folder, self.members = peer, folder, members
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for number, command in enumerate(self.peer.helpers()):
            self._run(command, {MEMBER: f"helper-{number}"})
        for member in self.members:
            self.start_member(member)

    def start_member(self, member: str) -> None:
        self._run(self.peer.command(member), {**self.peer.environment(member), MEMBER: member})

    def kill_worker(self, member: str) -> float:
        at = time.time()
        os.kill(self._worker(member), signal.SIGKILL)
        return at

    def kill_member(self, member: str) -> float:
        """The agent first: it cannot tell the others that its worker has died."""
        worker = self._worker(member)
        doomed = sorted(self._processes(member), key=lambda process: process.pid == worker)
        at = time.time()
        _kill(doomed)
        return at

    def stop(self) -> None:
        _kill(self._processes())
        for process in self._started:
            process.wait(STOP_TIMEOUT_S)

    def said(self) -> str:
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-2000:]}" for path in sorted(self.folder.glob("*.log")))

    def _worker(self, member: str) -> int:
        """The member's newest process that writes a diary."""
        newest = max(self.folder.glob(f"{member}.*.jsonl"), key=lambda path: path.stat().st_mtime)
        return int(newest.name.split(".")[1])

    def _processes(self, member: str | None = None) -> list[psutil.Process]:
        return [process for process in all_processes() if self._is_ours(process, member)]

    def _is_ours(self, process: psutil.Process, member: str | None) -> bool:
        try:
            environment = process.environ()
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            return False  # gone meanwhile, or another user's
        return environment.get(FOLDER) == str(self.folder) and member in (None, environment.get(MEMBER)) and process.pid != os.getpid()

    def _run(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        everything = {**os.environ, "OMP_NUM_THREADS": "1", FOLDER: str(self.folder), **environment}
        with (self.folder / f"{environment[MEMBER]}.log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=everything, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._started.append(process)


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # ended with its parent
            process.kill()
