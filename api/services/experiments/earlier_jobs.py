"""Times of jobs that have run before, for the plan of an experiment of which no trial has ended yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.cluster.experiments.facts import Cell
from paceline.cluster.experiments.time_left import TrialTime
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories.jobs import CompletedJob
from paceline.training.spec.job import JobSpec

#: Completed jobs that are looked at, the newest first.
MOST_JOBS = 200
#: The sections that say what a job computes for a sample. Other fields change a step's time less, or in ways that nobody has measured yet.
_WORK = ("model", "data", "entrypoint", "script", "precision")


async def earlier_times(session: AsyncSession, cells: Sequence[Cell]) -> list[TrialTime]:
    """Return how long each of `cells` would take, by the newest completed job with the same work, one with as many ranks if there is one; nothing for
    cells like which none has completed. Seconds are taken to grow with the samples, and to shrink with the ranks.
    """
    completed = await job_rows.newest_completed(session, MOST_JOBS)
    found = []
    for cell in cells:
        document = JobSpec.model_validate(cell.document).model_dump(mode="json")
        alike = [each for each in completed if _work(each.document) == _work(document) and _samples(each.document)]
        samples = _samples(document)
        if alike and samples is not None:
            known = next((each for each in alike if each.world_size == cell.world_size), alike[0])
            found.append(TrialTime(cell.world_size, 1, _scaled(known, samples, cell.world_size), has_ended=True))
    return found


def _scaled(job: CompletedJob, samples: int, ranks: int) -> float:
    done = _samples(job.document) or 1
    return job.ran_seconds * samples / done * job.world_size / ranks


def _work(document: Mapping[str, Any]) -> list[Any]:
    return [document.get(name) for name in _WORK]


def _samples(document: Mapping[str, Any]) -> int | None:
    """The samples that a job trains with; None: its spec does not say how many."""
    training = document.get("training") or {}
    steps, batch = training.get("steps"), training.get("global_batch_size")
    return steps * batch if steps and batch else None
