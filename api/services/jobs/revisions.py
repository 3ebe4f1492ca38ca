"""The ETag of a job: it spares sending an unchanged job again, and refuses changes by clients with an outdated view.

The tag is the revision, which is all that `If-Match` looks at, and a digest of the rest, which `If-None-Match` looks at too: progress,
ranks and why a job waits move without a new revision.
"""

from __future__ import annotations

import hashlib

from paceline.api.errors import ProblemError
from paceline.api.schemas.jobs import Job
from paceline.db.models.jobs import JobRow


def etag(job: Job) -> str:
    """The ETag of everything but `as_of_seq`, which every event of any job moves."""
    rest = job.model_dump_json(exclude={"as_of_seq"}).encode()
    return f'"{job.revision}-{hashlib.blake2b(rest, digest_size=6).hexdigest()}"'


def is_had(tag: str, if_none_match: str | None) -> bool:
    """Whether the client has the present version."""
    return not {"*", *_tags(tag)}.isdisjoint(_tags(if_none_match or ""))


def check(job: JobRow, if_match: str | None) -> None:
    """Check `If-Match: "<revision>"`, so that no client that sends it changes a job of which it has an outdated view. Without the header
    the change is made, as plain `curl` expects."""
    check_version("job", job.version, if_match)


def check_version(noun: str, version: int, if_match: str | None) -> None:
    """Check `If-Match` against the revision of any noun. Raises ProblemError `precondition_failed`."""
    if if_match is None:
        return
    if {"*", str(version)}.isdisjoint(tag.partition("-")[0] for tag in _tags(if_match)):
        raise ProblemError("precondition_failed", f"the {noun} is at revision {version}, you have {if_match}; read it again")


def _tags(header: str) -> list[str]:
    return [tag.strip().removeprefix("W/").strip('"') for tag in header.split(",")]
