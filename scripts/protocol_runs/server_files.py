"""A parameter server's checkpoints in `run_sync_parameter_server.py`: one file for each, whole or absent, with a checksum of its content.

A line of JSON tells the step, the server, the run that it belongs to and the SHA-256 of what follows: the shard's parameters, then its momentum.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from paceline.monitoring.files import write_durably


class ServerFile(NamedTuple):
    """The state of a server after a step."""

    step: int
    content: bytes


class DamagedFileError(RuntimeError):
    """A checkpoint of a server cannot be used."""


def write(folder: Path, run: Mapping[str, object], server: int, step: int, content: bytes) -> str:
    """Write a server's checkpoint and return the SHA-256 of its content. `run`: what a run must have in common to go on from it."""
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(content).hexdigest()
    head = json.dumps({"step": step, "server": server, "run": run, "sha256": digest}).encode()
    write_durably(path_of(folder, server, step), head + b"\n" + content)
    return digest


def read(folder: Path, run: Mapping[str, object], server: int, step: int) -> ServerFile:
    """Read a server's checkpoint. Raises `DamagedFileError` if it is damaged, or of another run."""
    path = path_of(folder, server, step)
    try:
        head, _, content = path.read_bytes().partition(b"\n")
        said = json.loads(head)
        found = said["sha256"], said["step"], said["server"], said["run"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(f"{path}: {error}") from error
    if (digest := hashlib.sha256(content).hexdigest()) != found[0]:
        raise DamagedFileError(f"{path}: its content has SHA-256 {digest[:12]}…, it was written with {found[0][:12]}…")
    if found[1:3] != (step, server):
        raise DamagedFileError(f"{path}: it is of step {found[1]} and server {found[2]}")
    if found[3] != dict(run):
        raise DamagedFileError(f"{path}: it is of a run with {found[3]}, not {dict(run)}; use another --checkpoint folder")
    return ServerFile(step, content)


def newest_step(folder: Path | None, run: Mapping[str, object], servers: int, warn: Callable[[str], None]) -> int:
    """Return the newest step of which every server has a file that can be used; 0: there is none. `warn` is told of each that cannot."""
    if folder is None or not folder.is_dir():
        return 0
    steps = sorted({int(path.stem.rpartition("-")[2]) for path in folder.glob("server-*.step-*.bin")}, reverse=True)
    return next((step for step in steps if _all_good(folder, run, servers, step, warn)), 0)


def _all_good(folder: Path, run: Mapping[str, object], servers: int, step: int, warn: Callable[[str], None]) -> bool:
    try:
        for server in range(servers):
            read(folder, run, server, step)
    except DamagedFileError as error:
        warn(str(error))
        return False
    return True


def path_of(folder: Path, server: int, step: int) -> Path:
    return folder / f"server-{server}.step-{step:08}.bin"
