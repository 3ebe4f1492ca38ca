"""Reads one event file while it grows: never from the beginning again, and never more than a little at once."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from paceline.monitoring.event_reader import MAX_PAYLOAD_BYTES, DamagedEventError, PayloadSplitter, Scalars, scalars_of
from paceline.monitoring.files import open_file

READ_BYTES = 2 * MAX_PAYLOAD_BYTES
#: What looks damaged may be a write that is under way on a file system of another machine.
DAMAGE_SECONDS = 30.0


@dataclass(frozen=True)
class _Identity:
    device: int
    inode: int


class EventFileReader:
    """One event file that grows. Events before `since` belong to an earlier user of the file, and are left out. `read` raises OSError
    where the file is gone."""

    def __init__(self, path: Path, since: float) -> None:
        self.path, self._since = path, since
        self._identity: _Identity | None = None
        self._pieces = PayloadSplitter()
        self._damaged_since: float | None = None

    @property
    def passed_over(self) -> int:
        return self._pieces.passed_over

    def read(self) -> list[Scalars]:
        """The scalars that were added since the last call, up to READ_BYTES of the file. Raises DamagedEventError once nothing more can
        be read."""
        with open_file(self.path) as file:
            found = os.fstat(file.fileno())
            identity = _Identity(found.st_dev, found.st_ino)
            if identity != self._identity or (found.st_size < self._pieces.offset and self._pieces.passed_over == 0):
                self._identity, self._pieces = identity, PayloadSplitter()  # written anew under the same name
            if found.st_size <= self._pieces.offset:
                return []
            file.seek(self._pieces.offset)
            content = file.read(READ_BYTES)
        return self._scalars(content)

    def _scalars(self, content: bytes) -> list[Scalars]:
        scalars: list[Scalars] = []
        try:
            for payload in self._pieces.take(content):
                self._add(scalars, payload)
        except DamagedEventError:
            now = time.monotonic()
            self._damaged_since = self._damaged_since or now
            if not scalars and now - self._damaged_since > DAMAGE_SECONDS:
                raise
        else:
            self._damaged_since = None
        return scalars

    def _add(self, scalars: list[Scalars], payload: bytes) -> None:
        try:
            found = scalars_of(payload)
        except DamagedEventError:
            self._pieces.passed_over += 1
            return
        if found is not None and found.time >= self._since:
            scalars.append(found)
