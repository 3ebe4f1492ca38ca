"""The code that jobs ran, for whoever wants it for another job."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import paging
from paceline.api.schemas.bundles import EarlierCode
from paceline.api.schemas.common import Page
from paceline.db.models.bundles import BundleRow
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import bundles as rows
from paceline.training.schema.code import Code


async def page(session: AsyncSession, text: str | None, cursor: str | None, limit: int) -> Page[EarlierCode]:
    """List each stored bundle once, with the newest job that names it, the newest first. `text`: of the jobs that a name or the beginning of
    an id finds."""
    after = paging.decode(cursor, str)
    found = await rows.newest_jobs(session, text, None if after is None else str(after[0]), limit + 1)
    return paging.page_of(found, limit, _describe, lambda pair: (pair[0].id,))


def _describe(pair: tuple[JobRow, BundleRow]) -> EarlierCode:
    job, bundle = pair
    return EarlierCode(
        code=_code_of(job, bundle.digest),
        bytes=bundle.bytes,
        unpacked_bytes=bundle.unpacked_bytes,
        files=bundle.files,
        job_id=job.id,
        job_name=job.name,
        created_by=job.created_by,
        created_at=job.created_at,
    )


def _code_of(job: JobRow, digest: str) -> Code:
    """The section as the job has it. Where today's schema refuses its spec, only the digest counts."""
    spec = job.spec.readable
    return Code(bundle=digest) if spec is None or spec.environment.code is None else spec.environment.code
