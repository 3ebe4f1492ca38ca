"""The lock that keeps a data folder to one coordinator. SQLite has one writer, and the loops of two coordinators would take each other's
leases by force."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from paceline.db.errors import FolderInUseError, UnsupportedDatabaseError
from paceline.monitoring.files import make_private

LOCK = "coordinator.lock"
#: How long a coordinator that is being replaced may take to end.
PATIENCE_SECONDS = 3.0
POLL_SECONDS = 0.05


@contextlib.contextmanager
def folder_lock(data: Path, patience: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Hold the lock until the end of the block; the kernel takes it back however a process ends. Raises FolderInUseError, naming the
    process that holds it."""
    make_private(data)
    descriptor = os.open(data / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _await_lock(descriptor, data, patience)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _await_lock(descriptor: int, data: Path, patience: float) -> None:
    deadline = time.monotonic() + patience
    while not _try_lock(descriptor, data):
        if time.monotonic() >= deadline:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise FolderInUseError(
                f"the data folder {data} is used by another coordinator, process {holder}: stop that one ('paceline down', where "
                "'paceline up' started it), give PACELINE_DATA another folder, or use PostgreSQL (DATABASE_URL) for several coordinators "
                "and for more than one worker"
            )
        time.sleep(POLL_SECONDS)


def _try_lock(descriptor: int, data: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise UnsupportedDatabaseError(
            f"the data folder {data} cannot be locked ({error.strerror}); put it on a local file system"
        ) from error
    return True
