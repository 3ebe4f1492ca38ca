"""The command as a user runs it: a real process, with an environment and a home of its own."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cli.command_forker import CommandForker, Order, can_fork
from tests.cli.fake_coordinator import FakeCoordinator, serve

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60


@dataclass(frozen=True)
class Paceline:
    folder: Path
    forker: CommandForker
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        order = Order(arguments, str(self.folder), self.full(environment))
        if can_fork(order):
            return self.forker.run(order, stdin, TIMEOUT_S)
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.full(environment),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )

    def at_terminal(self, *arguments: str, typed: str = "", until: str = "", **environment: str) -> tuple[int, str]:
        """Run a command at a terminal, where `typed` is typed once it has shown `until`. Returns its exit code and all that was shown."""
        master, slave = pty.openpty()
        with subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.full({"TERM": "dumb", **environment}),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that a typed Ctrl-C is a signal
        ) as process:
            os.close(slave)
            shown = _read(master, until) if until else b""
            os.write(master, typed.encode())
            shown += _read(master, None)
            code = process.wait(timeout=TIMEOUT_S)
        os.close(master)
        return code, shown.decode().replace("\r\n", "\n")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments), cwd=self.folder, env=self.full({}), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    @staticmethod
    def command(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "paceline.cli.main", *arguments]

    def full(self, more: dict[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
        return {**kept, "PYTHONPATH": str(ROOT), "HOME": str(self.folder / "home"), "XDG_CONFIG_HOME": "", **self.environment, **more}


def _read(master: int, until: str | None) -> bytes:
    """All that a terminal shows until this text; None: until its last process has closed it, which Linux tells as an input/output error."""
    shown = b""
    while until is None or until.encode() not in shown:
        try:
            shown += os.read(master, 65536)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            break
    return shown  # it may end within a character


@pytest.fixture
def coordinator() -> Iterator[FakeCoordinator]:
    with serve() as fake:
        yield fake


@pytest.fixture(scope="session")
def forker() -> Iterator[CommandForker]:
    forker = CommandForker()
    yield forker
    forker.close()


@pytest.fixture
def paceline(tmp_path: Path, coordinator: FakeCoordinator, forker: CommandForker) -> Paceline:
    """Signed in to the fake coordinator."""
    return Paceline(tmp_path, forker, {"PACELINE_SERVER": coordinator.url, "PACELINE_API_KEY": "pk_test"})


@pytest.fixture
def stranger(tmp_path: Path, forker: CommandForker) -> Paceline:
    """Knows no coordinator and has no key."""
    return Paceline(tmp_path, forker)
