"""The database of MOCK_DB: files in a private folder in memory that are gone at the end.

SQLite's own `:memory:` is one connection's; a coordinator has many, and a worker process beside it. So the files lie in a file system that
is memory (/dev/shm), or, where that is small or missing, in the folder for temporary files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pydantic import ByteSize

from paceline.api.settings import Settings
from paceline.db.errors import FolderInUseError
from paceline.db.folder_lock import LOCK, folder_lock

MEMORY = Path("/dev/shm")
PREFIX = "paceline-mock-"
#: What has to be free in memory, and what points and log lines may take of it.
LEAST_FREE, KEPT = 4 << 30, 1 << 30


@contextlib.contextmanager
def private_database(settings: Settings) -> Iterator[Settings]:
    """The settings with a folder of their own, which is removed in the end. DATABASE_URL and REDIS_URL are left alone."""
    parent = parent_folder()
    sweep(parent)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    try:
        yield settings.model_copy(
            update={"data": folder, "database_url": None, "redis_url": None, "print_login_link": False, "keep_size": ByteSize(KEPT)}
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def parent_folder() -> Path:
    """Where mock databases lie."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= LEAST_FREE:
        return MEMORY
    return Path(tempfile.gettempdir())


def sweep(parent: Path) -> None:
    """Remove what coordinators have left behind that were killed: folders of this user that nobody holds."""
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid() or not (folder / LOCK).exists():
                continue
            with folder_lock(folder, patience=0.0):
                shutil.rmtree(folder, ignore_errors=True)
        except (FolderInUseError, FileNotFoundError):
            continue  # it is at work, or has just been removed by another one
        except OSError as error:
            print(f"{folder} cannot be removed: {error}", file=sys.stderr)
