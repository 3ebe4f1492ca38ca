"""Which checkpoints a rank may speak of. Its events are input: all viewers see the places of all jobs' checkpoints, and any code can name them."""

from __future__ import annotations

from pathlib import PurePosixPath

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.services.specs.stored_specs import checkpoint_folder
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import checkpoints as checkpoint_rows
from paceline.db.repositories import jobs as job_rows
from paceline.objects.location import place_at
from paceline.training.saving.manifest import directory_name


def why_not_saved_at(job: JobRow, directory: str, step: int, generation: int) -> str | None:
    """The reason why ranks of `job` cannot have saved this step at `directory`, spelled like that; None: they can.

    One checkpoint has one spelling: by another it would be recorded a second time, and deleted as this job's."""
    name, folder = directory_name(step, generation), checkpoint_folder(job)
    if folder is not None:
        expected = str(place_at(folder) / name)
        return None if directory == expected else f"checkpoint {directory[:500]} is not {expected}"
    path = PurePosixPath(directory)
    if path.is_absolute() and str(path) == directory and path.parts[-2:] == (job.id, name):
        return None
    return f"checkpoint {directory[:500]} is not a path that ends in /{job.id}/{name}"


async def known_to(session: AsyncSession, job_id: str, directory: str) -> CheckpointRow | None:
    """The checkpoint at `directory`, where it is one of those that the job's ranks are told to restore: its own, the one that it was started
    from, and older ones of that one's job."""
    checkpoint = await checkpoint_rows.by_directory(session, directory)
    if checkpoint is None or checkpoint.job_id == job_id:
        return checkpoint
    job = await job_rows.get(session, job_id)
    origin = await checkpoint_rows.get(session, job.restored_from) if job is not None and job.restored_from else None
    return checkpoint if origin is not None and (checkpoint.id == origin.id or is_older(checkpoint, origin)) else None


def is_older(one: CheckpointRow, other: CheckpointRow) -> bool:
    """Whether a checkpoint was saved before `other`, by the same job: a later generation may pass the same steps again, with another
    outcome."""
    return one.id != other.id and one.job_id == other.job_id and one.step <= other.step and one.generation <= other.generation
