"""Small files that must be whole or absent, whatever dies while they are written."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_durably(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replace `path` with `content`: written beside it, fsynced, renamed, and the folder fsynced. A failure leaves nothing beside."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(beside, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):  # a disk that refuses this too has said so already
            beside.unlink()
        raise
    sync_folder(path.parent)


def make_folders(path: Path) -> None:
    """With the parents that are missing; they survive a power cut."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Make a rename or a removal inside `path` survive a power cut."""
    _sync(path, os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Make what somebody else has written into it survive a power cut."""
    _sync(path, 0)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
