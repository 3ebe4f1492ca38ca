"""Which folders of jobs are looked at for files to send. A node keeps those of thousands of ended jobs for a while, in which nothing changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from pathlib import Path

#: How often all folders are looked at: an agent before this one may have left something.
ALL_SECONDS = 60.0


class JobFolders:
    """The folders below `path`, one a job. `with_ranks`: the ids of jobs that have ranks here; None: not known, and all are looked at each time."""

    def __init__(self, path: Path, with_ranks: Callable[[], Collection[str]] | None = None) -> None:
        self.path, self._with_ranks = path, with_ranks
        self._all_at = -math.inf

    def due(self, unfinished: Collection[str], now: float) -> list[Path]:
        """The folders to look at now: at first all of them, then those of jobs with ranks here, or `unfinished` ones, and now and then all again.
        `now` is monotonic."""
        if self._with_ranks is None or now - self._all_at >= ALL_SECONDS:
            self._all_at = now
            return sorted(self.path.iterdir()) if self.path.is_dir() else []
        return [self.path / job_id for job_id in sorted({*self._with_ranks(), *unfinished})]
