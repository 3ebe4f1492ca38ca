"""The agent's `--data` folder: what is where, its locks, and where the sockets go when its path is too long for them."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import stat
import tempfile
from pathlib import Path
from typing import IO

from monitoring.files import make_private, write_durably

#: sockaddr_un holds 108 bytes with the closing zero.
MAX_SOCKET_PATH_BYTES = 107
_LONGEST_SOCKET_NAME = "spawner.sock"

log = logging.getLogger(__name__)


class AgentFolder:
    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def create(self) -> None:
        make_private(self.path)
        make_private(self.jobs)

    @property
    def jobs(self) -> Path:  # training.link.RankFolder lies below
        return self.path / "jobs"

    @property
    def trash(self) -> Path:  # what could not be removed yet: cluster.agent.housekeeping
        return self.path / "trash"

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
    def store_port(self) -> Path:  # the port to take again, so that worlds handed out before a restart stay true
        return self.path / "store_port"

    @property
    def leaving(self) -> Path:  # while the agent ends its ranks: until when they may take, in seconds since the epoch
        return self.path / "leaving"

    @property
    def agent_socket(self) -> Path:
        return self._sockets() / "agent.sock"

    @property
    def spawner_socket(self) -> Path:
        return self._sockets() / _LONGEST_SOCKET_NAME

    def _sockets(self) -> Path:
        """DATA itself, or a short folder of ours (mode 0700) that DATA remembers."""
        if len(os.fsencode(self.path / _LONGEST_SOCKET_NAME)) <= MAX_SOCKET_PATH_BYTES:
            return self.path
        remembered = self.path / "sockets_folder"
        if remembered.exists() and _is_ours(folder := Path(remembered.read_text())):
            return folder
        folder = Path(tempfile.mkdtemp(prefix="paceline-"))
        write_durably(remembered, os.fsencode(folder))
        return folder


def _is_ours(folder: Path) -> bool:
    """Still there, and not put there by somebody else after ours was cleaned away."""
    return folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.getuid()


def lock(path: Path) -> IO[bytes] | None:
    """Hold `path` for the life of this process; None if another process holds it."""
    file = open(path, "ab")  # noqa: SIM115 - the lock lives as long as the file is open
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def listen(path: Path) -> socket.socket:
    """A Unix socket at `path` that only its owner can connect to. It gets its name last, so who sees the name can connect. For who holds
    the lock: whoever made an older socket there is dead."""
    unnamed = path.with_suffix(".new")
    unnamed.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(unnamed))
    unnamed.chmod(0o600)
    listener.listen()
    unnamed.rename(path)
    return listener


def regain(folder: Path) -> None:
    """Make a rank's folder ours to write in again. A rank may have changed its mode, or removed it: it was its working directory."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(folder.stat().st_mode | stat.S_IRWXU)


def set_aside(path: Path, why: object) -> None:
    """Rename a file that cannot be used, so that it is told of once and kept for whoever wants to look."""
    damaged = path.with_name(f"{path.name}.damaged")
    log.error("%s is damaged and set aside as %s: %s", path, damaged.name, why)
    try:
        path.replace(damaged)
    except OSError as error:
        log.warning("%s cannot be renamed: %s", path, error)
