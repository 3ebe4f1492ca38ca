"""The files of a local stack: everything lies in one data folder, so that removing it forgets the stack."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from paceline.cli.settings import CREDENTIALS

#: Processes that a stack starts carry this variable with `Layout.mark`, and so does whatever they start.
MARK = "PACELINE_STACK"


@dataclass(frozen=True)
class Layout:
    data: Path

    @classmethod
    def at(cls, data: Path) -> Layout:
        return cls(data.expanduser().resolve())

    def create(self) -> None:
        """Make the data folder and its `run`, for their owner only: they hold keys, specs with their variables, and logs."""
        for folder in (self.data, self.run):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid == os.geteuid():
                folder.chmod(0o700)

    @property
    def run(self) -> Path:
        return self.data / "run"

    @property
    def lock(self) -> Path:
        return self.run / "lock"

    @property
    def server(self) -> Path:
        """The file with the URL of the running coordinator."""
        return self.run / "server"

    @property
    def exposure(self) -> Path:
        """The file with the address under which other machines reach the running coordinator; absent: none."""
        return self.run / "exposure"

    @property
    def own_authority(self) -> Path:
        """The certificate of the coordinator's own authority, with `--tls self-signed`."""
        return self.data / "tls" / "ca.pem"

    @property
    def given_authority(self) -> Path:
        """The certificate of the authority that signed a given certificate, where machines do not know it."""
        return self.data / "tls" / "given.pem"

    @property
    def credentials(self) -> Path:
        return self.data / CREDENTIALS

    @property
    def checkpoints(self) -> Path:
        return self.data / "checkpoints"

    @property
    def mark(self) -> str:
        return hashlib.sha256(str(self.data).encode()).hexdigest()[:32]

    def agent(self, name: str) -> Path:
        return self.data / "agents" / name

    def leaving(self, name: str) -> Path:
        """The file in which an ending agent notes how long its ranks may take."""
        return self.agent(name) / "leaving"

    def record(self, name: str) -> Path:
        return self.run / f"{name}.json"

    def log(self, name: str) -> Path:
        return self.run / f"{name}.log"
