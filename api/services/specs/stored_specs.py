"""The specs of jobs as they are stored, for answers and decisions.

A job whose stored spec today's schema refuses is *unreadable* (`paceline.training.spec.stored`): it is listed and shown with the reason, it can be
cancelled, its ranks are left as they are, and the scheduler neither places nor restarts it.
"""

from __future__ import annotations

from typing import Any

from paceline.api.errors import ProblemError
from paceline.db.models.jobs import JobRow
from paceline.training.errors import UnreadableSpecError
from paceline.training.spec.job import JobSpec


def spec_of(job: JobRow) -> JobSpec:
    """The spec of a job. Raises `UnreadableSpecError`."""
    spec = job.spec.readable
    if spec is None:
        raise UnreadableSpecError(f"the stored spec of job {job.id} cannot be read by this version: {job.spec.why_unreadable}")
    return spec


def readable_spec_of(job: JobRow) -> JobSpec | None:
    """The spec of a job; None where it is unreadable: see `why_unreadable`."""
    return job.spec.readable


def why_unreadable(job: JobRow) -> str | None:
    """Why the spec of a job cannot be read; None where it can."""
    return job.spec.why_unreadable


def required_spec_of(job: JobRow) -> JobSpec:
    """The spec for an answer that needs it. Raises a problem that says why it cannot be read."""
    try:
        return spec_of(job)
    except UnreadableSpecError as error:
        raise ProblemError(
            "unreadable_spec", f"{error}; cancel the job and submit it anew, or go back to the version that stored it"
        ) from None


def stored_part(job: JobRow, *names: str) -> Any:
    """One value of the stored document, whether or not all of it can be read. None where it is missing."""
    return job.spec.part(*names)


def saves_when_ended(job: JobRow) -> bool:
    """Whether what the job runs saves before it ends on request: a script does where its spec says so."""
    script = stored_part(job, "script")
    return script is None or (isinstance(script, dict) and script.get("saves_on_sigterm") is True)


def checkpoint_folder(job: JobRow) -> str | None:
    """The place of a job's checkpoints, a path or a URL, where its spec names one. None: each agent's own folder."""
    root = stored_part(job, "checkpoint", "directory")
    return f"{root.rstrip('/')}/{job.id}" if root else None


def starts_in_own_folder(job: JobRow) -> bool:
    """Whether ranks of a job start in its own folder on each node, and what they save there is on that node alone: those of a script without
    a working directory."""
    return job.spec.is_script and stored_part(job, "environment", "working_directory") is None
