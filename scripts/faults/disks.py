"""Real file systems that are small, for as long as a test needs them. They take root; elsewhere `why_not` says so."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOUNT_TIMEOUT_SECONDS = 30.0


def why_not() -> str | None:
    """Return why file systems cannot be mounted here, or None where they can."""
    if os.geteuid() != 0:
        return "mounting takes root"
    attempt = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", tempfile.gettempdir()]
    done = subprocess.run(attempt, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"mounting is not allowed: {done.stderr.strip()}"


def command(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=MOUNT_TIMEOUT_SECONDS).stdout.strip()


@contextmanager
def mounted(folder: Path, *words: str) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    command("mount", *words, str(folder))
    try:
        yield folder
    finally:
        command("umount", "--lazy", str(folder))


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[Path]:
    with mounted(folder, "-t", "tmpfs", "-o", f"size={mebibytes}m", "paceline-small-disk"):
        yield folder


def fill(folder: Path) -> Path:
    """Write until nothing more fits; return the file to delete to make room again."""
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(64 << 10))
        except OSError:
            return filler
