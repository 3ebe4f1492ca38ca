"""What stays on a node after a rank is forgotten: the output of a job's last generation, and files that are not uploaded yet, for a day."""

from __future__ import annotations

import shutil
from pathlib import Path

from monitoring.artifacts import NOTE_SUFFIX
from training.link import RankFolder

KEEP_OUTPUT_SECONDS = 24 * 3600.0


def retire(folder: RankFolder) -> None:
    """Drop all but the output and how the rank ended. The order goes first: without it the rank is unknown."""
    for path in (folder.order, folder.metrics, folder.events, folder.acknowledged):
        path.unlink(missing_ok=True)


def sweep(jobs: Path, now: float) -> None:
    """Remove retired generations that are old, or not the job's last. `now` is the wall clock."""
    for job in jobs.iterdir():
        generations = sorted((path for path in job.glob("g*") if path.name[1:].isdigit()), key=lambda path: int(path.name[1:]))
        for generation in generations:
            old = now - _retired_at(generation) > KEEP_OUTPUT_SECONDS
            wanted = generation == generations[-1] or any(generation.glob(f"rank*/artifacts/*{NOTE_SUFFIX}"))
            if (old or not wanted) and not any(generation.glob("rank*/order.json")):
                shutil.rmtree(generation)
        if not any(job.iterdir()):
            job.rmdir()


def _retired_at(generation: Path) -> float:
    """Retiring a rank is the last change to its folder."""
    return max((rank.stat().st_mtime for rank in generation.glob("rank*")), default=0.0)
