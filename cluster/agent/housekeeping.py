"""The files that stay on a node for a day after a rank is forgotten: the output of a job's last generation, its PACELINE_LOG_DIR, files
that are not uploaded yet, and what ranks have left of checkpoints on their way to an object store or from it. What a script has saved in the
job's own folder stays until four days after the job's end, which only the coordinator knows: the job goes on from there after a pause of any
length.

A rank writes into its folder whatever it likes, so removing a folder may fail. A generation that is to go is therefore first renamed
into a trash folder, where nothing looks for ranks, and removed there. What cannot be removed stays in it, is reported once, and tried
again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import httpx
import msgspec

from paceline.cluster.agent.folders import KEEP_EMPTY_SECONDS, KEEP_OUTPUT_SECONDS, KEEP_WORK_SECONDS, reclaim
from paceline.cluster.agent.removal import remove_tree
from paceline.cluster.agent.upload.transfer import CoordinatorAwayError, send
from paceline.cluster.protocol import ENDED_JOBS_PATH, EndedJobs, EndedJobsQuestion
from paceline.monitoring.artifacts import NOTE_SUFFIX
from paceline.training.rank_folder import RankFolder

#: The coordinator is asked about so many jobs at once: a request has room for them.
JOBS_ASKED_ABOUT = 500
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

    async def tidy(self, http: httpx.AsyncClient, now: float) -> None:
        """Sweep, in a thread: that may take long. `http` leads to the coordinator; while it does not answer, what scripts have saved stays."""
        idle = await asyncio.to_thread(self.jobs_with_idle_work, now)
        ended = await _ended_among(idle, http)
        await asyncio.to_thread(self.sweep, now, ended)

    def jobs_with_idle_work(self, now: float) -> list[str]:
        """Return the jobs of which only what a script has saved has been here for days. Raises nothing about a single folder."""
        found = list[str]()
        for job in self._folders():
            self._attempt(job, lambda job=job: found.extend([job.name] if _has_idle_work(job, now) else []))  # type: ignore[misc]
        return found

    def sweep(self, now: float, ended: Collection[str] = ()) -> None:
        """Remove retired generations that are old, or not the job's last, and what scripts have saved of jobs that have `ended`. `now` is the
        wall clock. Raises nothing about a single folder."""
        self._trash.mkdir(mode=0o700, exist_ok=True)
        for job in self._folders():
            self._attempt(job, lambda job=job: self._sweep_job(job, now, ended))  # type: ignore[misc]
        for path in self._trash.iterdir():
            self._attempt(path, lambda path=path: self._remove(path))  # type: ignore[misc]

    def _folders(self) -> list[Path]:
        return [job for job in self._jobs.iterdir() if job.is_dir() and not job.is_symlink()]

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

    def _sweep_job(self, job: Path, now: float, ended: Collection[str]) -> None:
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
        elif job.name in ended and _has_idle_work(job, now):
            self._discard(job / "work")
        if not any(job.iterdir()) and now - job.stat().st_mtime > KEEP_EMPTY_SECONDS:
            job.rmdir()

    def _discard(self, folder: Path) -> None:
        folder.rename(self._trash / f"{folder.parent.name}.{folder.name}.{time.time_ns()}")


async def _ended_among(job_ids: Sequence[str], http: httpx.AsyncClient) -> set[str]:
    """Return those of these jobs that ended long ago; none where the coordinator is away, or of a version that does not tell."""
    ended = set[str]()
    for first in range(0, len(job_ids), JOBS_ASKED_ABOUT):
        some = tuple(job_ids[first : first + JOBS_ASKED_ABOUT])
        question = EndedJobsQuestion(job_ids=some, seconds_ago=KEEP_OUTPUT_SECONDS + KEEP_WORK_SECONDS)
        try:
            answer = await send(http, "POST", ENDED_JOBS_PATH, msgspec.json.encode(question), EndedJobs)
        except CoordinatorAwayError as error:
            log.info("what scripts have saved stays until the coordinator says whose jobs have ended: %s", error)
            break
        ended.update(answer.job_ids if answer is not None else ())
    return ended


def _has_idle_work(job: Path, now: float) -> bool:
    return now - job.stat().st_mtime > KEEP_WORK_SECONDS and {path.name for path in job.iterdir()} == {"work"}


def _is_generation(path: Path) -> bool:
    return path.name[1:].isdecimal() and path.is_dir() and not path.is_symlink()


def _retired_at(generation: Path) -> float:
    """When a rank was retired, which is the last change to its folder."""
    return max((rank.lstat().st_mtime for rank in generation.glob("rank*")), default=0.0)
