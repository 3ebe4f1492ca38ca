"""The command as a user runs it: a real process, with an environment and a home of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cli.fake_coordinator import FakeCoordinator, serve

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60


@dataclass(frozen=True)
class Paceline:
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.full(environment),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )

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


@pytest.fixture
def coordinator() -> Iterator[FakeCoordinator]:
    with serve() as fake:
        yield fake


@pytest.fixture
def paceline(tmp_path: Path, coordinator: FakeCoordinator) -> Paceline:
    """Signed in to the fake coordinator."""
    return Paceline(tmp_path, {"PACELINE_SERVER": coordinator.url, "PACELINE_API_KEY": "pk_test"})


@pytest.fixture
def stranger(tmp_path: Path) -> Paceline:
    """Knows no coordinator and has no key."""
    return Paceline(tmp_path)
