"""The files that stay on a node for a day after a rank is forgotten: the output of a job's last generation, its PACELINE_LOG_DIR, files
that are not uploaded yet, and what ranks have left of checkpoints on their way to an object store or from it; and for three more days what a
script has saved in the job's own folder, which may go on after a pause.

A rank writes into its folder whatever it likes, so removing a folder may fail. A generation that is to go is therefore first renamed
into a trash folder, where nothing looks for ranks, and removed there. What cannot be removed stays in it, is reported once, and tried
again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from paceline.cluster.agent.folders import reclaim
from paceline.cluster.agent.removal import remove_tree
from paceline.monitoring.artifacts import NOTE_SUFFIX
from paceline.training.rank_folder import RankFolder

KEEP_OUTPUT_SECONDS = 24 * 3600.0
KEEP_WORK_SECONDS = 3 * 24 * 3600.0
#: An empty folder of a job is left this long: a rank may just be about to be started in it.
KEEP_EMPTY_SECONDS = 60.0
SWEEP_SECONDS = 600.0  # at the latest, and soon after a rank was started or forgotten

log = logging.getLogger(__name__)


def retire(folder: RankFolder, *, had_secrets: bool = False) -> None:
    """Remove a rank's files except its output and its exit. The order goes first: without it the rank is unknown. `had_secrets`: what it has printed goes
    too, which may have them in it."""
    reclaim(folder.path)
    printed = (folder.output, folder.result, folder.error, folder.launch) if had_secrets else ()
    for path in (folder.order, folder.metrics, folder.events, folder.acknowledged, *printed):
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
        else:
            path.unlink(missing_ok=True)


class Housekeeper:
    """Removes what is old from the folder of all jobs. What is to go waits in `trash`, on the same file system. For one thread at a
    time."""

    def __init__(self, jobs: Path, trash: Path, remove: Callable[[Path], None] = remove_tree) -> None:
        self._jobs, self._trash, self._remove = jobs, trash, remove
        self._reported: set[Path] = set()

    def sweep(self, now: float) -> None:
        """Remove retired generations that are old, or not the job's last. `now` is the wall clock. Raises nothing about a single folder."""
        self._trash.mkdir(mode=0o700, exist_ok=True)
        for job in self._jobs.iterdir():
            if job.is_dir() and not job.is_symlink():
                self._attempt(job, lambda job=job: self._sweep_job(job, now))  # type: ignore[misc]
        for path in self._trash.iterdir():
            self._attempt(path, lambda path=path: self._remove(path))  # type: ignore[misc]

    def _attempt(self, path: Path, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            if path not in self._reported:
                log.warning(
                    "%s cannot be removed: %s; it stays for now, and is tried again every %.0f minutes", path, error, SWEEP_SECONDS / 60
                )
            self._reported.add(path)
        else:
            self._reported.discard(path)

    def _sweep_job(self, job: Path, now: float) -> None:
        generations = sorted((path for path in job.glob("g*") if _is_generation(path)), key=lambda path: int(path.name[1:]))
        for generation in generations:
            old = now - _retired_at(generation) > KEEP_OUTPUT_SECONDS
            wanted = generation == generations[-1] or any(generation.glob(f"rank*/artifacts/*{NOTE_SUFFIX}"))
            if (old or not wanted) and not any(generation.glob("rank*/order.json")):
                self._discard(generation)
        left, idle = {path.name for path in job.iterdir()}, now - job.stat().st_mtime
        needless = left & {"logs", "staging"}
        if needless and left <= needless | {"work"} and idle > KEEP_EMPTY_SECONDS:
            for name in needless:
                self._discard(job / name)
        elif left == {"work"} and idle > KEEP_WORK_SECONDS:
            self._discard(job / "work")
        if not any(job.iterdir()) and now - job.stat().st_mtime > KEEP_EMPTY_SECONDS:
            job.rmdir()

    def _discard(self, folder: Path) -> None:
        folder.rename(self._trash / f"{folder.parent.name}.{folder.name}.{time.time_ns()}")


def _is_generation(path: Path) -> bool:
    return path.name[1:].isdecimal() and path.is_dir() and not path.is_symlink()


def _retired_at(generation: Path) -> float:
    """When a rank was retired, which is the last change to its folder."""
    return max((rank.lstat().st_mtime for rank in generation.glob("rank*")), default=0.0)
