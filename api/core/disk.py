"""The free disk under the databases: below a watermark points, log lines and files are refused, so that changes of state still fit."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from paceline.api.errors import ProblemError
from paceline.api.settings import Settings

#: The default watermark: the smaller of the two.
LOW_SHARE, LOW_BYTES = 0.05, 2 << 30
#: What was refused is taken again once this much more than the watermark is free, so that it does not come and go.
HYSTERESIS = 1.1
RETRY_SECONDS = 30


@dataclass(frozen=True)
class Disk:
    free: int
    total: int
    limit: int  # the watermark
    low: bool


@dataclass
class DiskWatch:
    """The free space of a folder. `folder` None: the disk is another machine's (PostgreSQL), and never low."""

    folder: Path | None
    limit: int | None = None  # bytes; None: the default
    usage: Callable[[Path], tuple[int, int, int]] = shutil.disk_usage  # (total, used, free)
    look_every_seconds: float = 1.0
    _seen: Disk | None = None
    _looked_at: float = -math.inf

    def state(self) -> Disk | None:
        """The state of the disk, looked at now and then; None where it cannot be seen."""
        if self.folder is not None and time.monotonic() - self._looked_at >= self.look_every_seconds:
            self._looked_at = time.monotonic()
            self._seen = self._look(self.folder)
        return self._seen

    def _look(self, folder: Path) -> Disk:
        total, _, free = self.usage(folder)
        limit = min(int(total * LOW_SHARE), LOW_BYTES) if self.limit is None else self.limit
        was_low = self._seen is not None and self._seen.low
        return Disk(free, total, limit, low=free < limit * (HYSTERESIS if was_low else 1))

    @property
    def is_low(self) -> bool:
        state = self.state()
        return state is not None and state.low

    def refusal(self) -> ProblemError:
        state = self.state()
        assert state is not None, "only a disk that can be seen is low"
        return ProblemError(
            "disk_low",
            f"the coordinator has {state.free:,} bytes of free disk at {self.folder}; below {state.limit:,} (PACELINE_DISK_LOW) points, log "
            "lines and files wait on their nodes. Free some space there, or delete ended jobs' data with `paceline delete`",
            headers={"Retry-After": str(RETRY_SECONDS)},
        )

    def require_room(self) -> None:
        if self.is_low:
            raise self.refusal()


def watch_of(settings: Settings) -> DiskWatch:
    """The watch of the disk that fills; PostgreSQL's is watched where a setting names a folder on it."""
    return DiskWatch(settings.disk_folder or (None if settings.database_url else settings.data), settings.disk_low)
