"""The agent's `--data` folder: its files, its locks, and the place of the sockets when its path is too long for them."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from paceline.monitoring.files import make_private, write_durably

#: sockaddr_un holds 108 bytes with the closing zero.
MAX_SOCKET_PATH_BYTES = 107
_LONGEST_SOCKET_NAME = "spawner.sock"

#: How long a job's files stay on a node: its output and its work folder after its end.
KEEP_OUTPUT_SECONDS = 24 * 3600.0
KEEP_WORK_SECONDS = 3 * 24 * 3600.0  # longer than the output
#: An empty folder of a job is left this long: a rank may just be about to be started in it.
KEEP_EMPTY_SECONDS = 60.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SpawnerPlace:
    """The files by which an agent and one of its spawners find each other."""

    lock: Path  # held as long as the spawner lives
    socket: Path


class AgentFolder:
    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def create(self) -> None:
        make_private(self.path)
        make_private(self.jobs)
        make_private(self.readings)

    @property
    def jobs(self) -> Path:  # training.rank_folder.RankFolder lies below
        return self.path / "jobs"

    @property
    def trash(self) -> Path:  # what could not be removed yet: cluster.agent.housekeeping
        return self.path / "trash"

    @property
    def readings(self) -> Path:  # what was read of the node and its cards: cluster.agent.upload.readings_spool
        return self.path / "readings"

    @property
    def bundles(self) -> Path:  # code of jobs: cluster.agent.bundles
        return self.path / "bundles"

    @property
    def secret_jobs(self) -> Path:  # an empty file for each job that has secrets: cluster.agent.job_secrets
        return self.path / "secret_jobs"

    @property
    def credential(self) -> Path:
        return self.path / "credential.json"

    @property
    def agent_lock(self) -> Path:
        return self.path / "agent.lock"

    @property
    def spawner_lock(self) -> Path:
        return self.path / "spawner.lock"

    @property
    def spawner_log(self) -> Path:
        return self.path / "spawner.txt"

    @property
    def environments(self) -> Path:  # packages of jobs: cluster.agent.environments
        return self.path / "environments"

    def spawner(self, name: str) -> SpawnerPlace:
        """The files of the spawner of this name; of the default one without a name."""
        if not name:
            return SpawnerPlace(self.spawner_lock, self.spawner_socket)
        sockets = self._sockets(f"{name}.{_LONGEST_SOCKET_NAME}")
        return SpawnerPlace(self.path / f"{name}.{self.spawner_lock.name}", sockets / f"{name}.{_LONGEST_SOCKET_NAME}")

    def spawner_names(self) -> list[str]:
        """The names of spawners that have a lock file here, whether or not they live; without the default one."""
        suffix = f".{self.spawner_lock.name}"
        return sorted(path.name.removesuffix(suffix) for path in self.path.glob(f"*{suffix}"))

    @property
    def store_port(self) -> Path:  # the port to take again, so that worlds handed out before a restart stay true
        return self.path / "store_port"

    @property
    def offered(self) -> Path:  # what the living ranks' slots are: cluster.agent.offer
        return self.path / "offered.json"

    @property
    def leaving(self) -> Path:  # while the agent ends its ranks: until when they may take, in seconds since the epoch
        return self.path / "leaving"

    @property
    def agent_socket(self) -> Path:
        return self._sockets() / "agent.sock"

    @property
    def spawner_socket(self) -> Path:
        return self._sockets() / _LONGEST_SOCKET_NAME

    def _sockets(self, longest: str = _LONGEST_SOCKET_NAME) -> Path:
        """The folder of the sockets: DATA itself, or a short folder of ours (mode 0700) that DATA remembers."""
        if len(os.fsencode(self.path / longest)) <= MAX_SOCKET_PATH_BYTES:
            return self.path
        remembered = self.path / "sockets_folder"
        if remembered.exists() and _is_ours(folder := Path(remembered.read_text())):
            return folder
        folder = Path(tempfile.mkdtemp(prefix="paceline-"))
        write_durably(remembered, os.fsencode(folder))
        return folder


def _is_ours(folder: Path) -> bool:
    """Whether our folder still exists, and was not made by another user after ours had been removed."""
    return folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.getuid()


def lock(path: Path) -> IO[bytes] | None:
    """Hold `path` for the life of this process. Returns None if another process holds it."""
    file = open(path, "ab")  # noqa: SIM115 - the lock lives as long as the file is open
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def listen(path: Path) -> socket.socket:
    """Listen on a Unix socket at `path` that only its owner can connect to. The socket gets its name last, so that it can be connected
    to as soon as the name exists. For the process that holds the lock: an older socket there belongs to a dead process."""
    unnamed = path.with_suffix(".new")
    unnamed.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(unnamed))
    unnamed.chmod(0o600)
    listener.listen()
    unnamed.rename(path)
    return listener


def reclaim(folder: Path) -> None:
    """Make a rank's folder writable to the agent again. A rank may have changed its mode, or removed it: it was the rank's working
    directory."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(folder.stat().st_mode | stat.S_IRWXU)


def set_aside(path: Path, why: object) -> None:
    """Rename a file that cannot be used, so that it is reported once and kept for inspection."""
    damaged = path.with_name(f"{path.name}.damaged")
    log.error("%s is damaged and set aside as %s: %s", path, damaged.name, why)
    try:
        path.replace(damaged)
    except OSError as error:
        log.warning("%s cannot be renamed: %s", path, error)
