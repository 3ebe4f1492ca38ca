"""Wheels of this checkout, also of a later version of it, and virtual environments that have one: nothing of the checkout is in reach there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.stack import ROOT

_VERSION = re.compile(r'^version = "(.+)"$', re.MULTILINE)


@dataclass(frozen=True)
class Installed:
    """A virtual environment with Paceline, and a folder of somebody who knows nothing else of it."""

    python: Path
    home: Path

    @property
    def site_packages(self) -> Path:
        return next(self.python.parent.parent.glob("lib/python*/site-packages"))

    def run(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "PYTHON"))}
        command = [str(self.python.parent / "paceline"), *arguments]
        return subprocess.run(
            command,
            cwd=self.home,
            env=kept | {"HOME": str(self.home), "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def expect(self, *arguments: str, timeout: float = 120) -> str:
        done = self.run(*arguments, timeout=timeout)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout + done.stderr

    def install(self, *packages: str | Path) -> None:
        subprocess.run([self.python, "-m", "pip", "install", "-q", *packages], check=True, timeout=500, stderr=subprocess.DEVNULL)

    def borrow_packages(self) -> None:
        """Lend it the packages of this Python, behind its own."""
        (self.site_packages / "lent.pth").write_text(sysconfig.get_path("purelib"))


def installed(folder: Path, *packages: str | Path) -> Installed:
    """A new environment below this folder, with these packages."""
    venv.create(folder / "venv", with_pip=True)
    (folder / "home").mkdir()
    made = Installed(folder / "venv" / "bin" / "python", folder / "home")
    made.install(*packages)
    return made


def build_wheel(folder: Path, source: Path = ROOT) -> Path:
    """The wheel of a checkout, in this folder, which is empty."""
    (folder / "build.cfg").write_text(f"[build]\nbuild_base={folder}/build\n[egg_info]\negg_base={folder}\n")
    environment = os.environ | {"DIST_EXTRA_CONFIG": str(folder / "build.cfg")}
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source)]
    subprocess.run(command, env=environment, check=True, timeout=120)
    return next(folder.glob("*.whl"))


def copy_of_checkout(folder: Path) -> Path:
    """What git has of this checkout, as it lies there, and the dashboard if it is built."""
    for name in subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0"):
        if name and ((ROOT / name).is_symlink() or (ROOT / name).exists()):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    if (ROOT / "dashboard" / "dist").exists():
        shutil.copytree(ROOT / "dashboard" / "dist", folder / "dashboard" / "dist")
    return folder


def version_of(checkout: Path) -> str:
    found = _VERSION.search((checkout / "pyproject.toml").read_text())
    assert found is not None
    return found[1]


def set_version(checkout: Path, version: str) -> None:
    project = checkout / "pyproject.toml"
    changed, count = _VERSION.subn(f'version = "{version}"', project.read_text())
    assert count == 1
    project.write_text(changed)
