"""The agent's `--data` folder: what is where, and where the sockets go when its path is too long for them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from monitoring.files import write_durably

#: sockaddr_un holds 108 bytes with the closing zero.
MAX_SOCKET_PATH_BYTES = 107
_LONGEST_SOCKET_NAME = "spawner.sock"


class AgentFolder:
    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def create(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self.jobs.mkdir(exist_ok=True)

    @property
    def jobs(self) -> Path:  # training.link.RankFolder lies below
        return self.path / "jobs"

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
