"""The specs of jobs as they are stored, read with today's schema.

A spec was checked when it was submitted, by the schema of that day. A later release may refuse it. Such a job is *unreadable*: it is
listed and shown with the reason, it can be cancelled, its ranks are left as they are, and the scheduler neither places nor restarts it.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from api.errors import ProblemError
from db.base import dump_json
from db.models.jobs import JobRow
from training.spec.job import JobSpec

#: Parsed specs that are kept. They are frozen, and found by what the stored document says: a changed document is another one.
MOST_KEPT = 1024
#: Of the wrong fields of one spec, how many are named.
MOST_NAMED = 3


class UnreadableSpecError(Exception):
    """Today's schema refuses the stored spec of a job."""


def spec_of(job: JobRow) -> JobSpec:
    """Raises `UnreadableSpecError`."""
    found = _parse(dump_json(job.spec))
    if isinstance(found, str):
        raise UnreadableSpecError(f"the stored spec of job {job.id} cannot be read by this version: {found}")
    return found


def readable_spec_of(job: JobRow) -> JobSpec | None:
    """None where it is unreadable: see `why_unreadable`."""
    found = _parse(dump_json(job.spec))
    return None if isinstance(found, str) else found


def why_unreadable(job: JobRow) -> str | None:
    """None where it can be read."""
    found = _parse(dump_json(job.spec))
    return found if isinstance(found, str) else None


def required_spec_of(job: JobRow) -> JobSpec:
    """For an answer that cannot be given without it: a problem that says why."""
    try:
        return spec_of(job)
    except UnreadableSpecError as error:
        raise ProblemError(
            "unreadable_spec", f"{error}; cancel the job and submit it anew, or go back to the version that stored it"
        ) from None


def stored_part(job: JobRow, *names: str) -> Any:
    """One value of the stored document, whether or not all of it can be read. None where it is not there."""
    value: Any = job.spec
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


@lru_cache(maxsize=MOST_KEPT)
def _parse(document: str) -> JobSpec | str:
    try:
        return JobSpec.model_validate(json.loads(document))
    except ValidationError as error:
        return _named(error)
    except Exception as error:  # noqa: BLE001 - a check of ours met something that it did not expect, which is no reason to fail whoever asks
        return f"{type(error).__name__}: {error}"


def _named(error: ValidationError) -> str:
    wrong = error.errors(include_url=False, include_context=False)
    named = [f"{'.'.join(map(str, each['loc'])) or 'spec'}: {each['msg']}" for each in wrong[:MOST_NAMED]]
    rest = f"; and {len(wrong) - MOST_NAMED} more" if len(wrong) > MOST_NAMED else ""
    return f"{'; '.join(named)}{rest}"
