"""Jobs: submit, list, look at, edit, archive, pause, resume, resize, cancel."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import JSONResponse

from paceline.api.core import paging
from paceline.api.core.paging import Cursor, Fields, Limit
from paceline.api.deps import IfMatch, Member, ReadSession, ServicesDep, WriteSession
from paceline.api.middleware.spec_body import SpecRoute
from paceline.api.routes.job_filters import JobFilterQuery
from paceline.api.schemas.job_lists import JobFacets, JobPage
from paceline.api.schemas.jobs import Job, JobEdit, JobSummary, Resize
from paceline.api.services.jobs import descriptions, edits, jobs, listing, ownership, revisions, submission
from paceline.api.services.jobs.idempotency import Once
from paceline.db.models.jobs import JobRow
from paceline.training.spec.job import JobSpec, json_schema

router = APIRouter(prefix="/training", tags=["jobs"], route_class=SpecRoute)
IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match", description="the ETag you have: 304 when the job is still that")]
Sort = Literal["created_at", "-created_at", "name", "-name", "priority", "-priority"]


@router.get("/spec-schema")
async def spec_schema() -> dict[str, Any]:
    """The JSON Schema of a job spec."""
    return json_schema()


@router.post("/jobs", status_code=201)
async def submit_job(
    body: JobSpec,
    response: Response,
    caller: Member,
    services: ServicesDep,
    once: Once,
    plan_hash: Annotated[str | None, Query(description="of the plan you have seen: 409 plan_changed when it would differ now")] = None,
) -> Job:
    """Submit a job. The body is the job spec, as JSON or as YAML (application/yaml)."""
    job = await submission.submit(services, once, body, caller.actor, plan_hash)
    response.headers["ETag"] = revisions.etag(job)
    response.headers["Location"] = f"/api/v1/training/jobs/{job.id}"
    return job


@router.get("/jobs", response_model=JobPage)
async def list_jobs(
    session: ReadSession,
    services: ServicesDep,
    wanted: JobFilterQuery,
    cursor: Cursor = None,
    limit: Limit = 50,
    sort: Sort = "-created_at",
    count: Annotated[bool, Query(description="tell `total` and `first` as well")] = False,
    fields: Fields = None,
) -> JobPage | JSONResponse:
    """List jobs. Labels are filtered with `label.KEY=VALUE`; archived jobs are left out unless asked for."""
    page = await listing.page(session, wanted, listing.order_of(sort, cursor), limit, services.now(), count=count)
    return paging.only(page, JobSummary, fields)


@router.get("/job-facets")
async def job_facets(session: ReadSession) -> JobFacets:
    """The projects, users, models and labels that jobs have, archived ones among them: what a list can be filtered by."""
    return await listing.facets(session)


@router.get("/jobs/{job_id}", responses={304: {"description": "the job is as you have it"}})
async def get_job(job_id: str, response: Response, services: ServicesDep, session: ReadSession, if_none_match: IfNoneMatch = None) -> Job:
    job = await descriptions.describe(session, await jobs.find(session, job_id), services.now())
    response.headers["ETag"] = etag = revisions.etag(job)
    if revisions.is_had(etag, if_none_match):
        response.status_code = 304
    return job


@router.patch("/jobs/{job_id}")
async def edit_job(
    job_id: str, body: JobEdit, response: Response, caller: Member, services: ServicesDep, session: WriteSession, if_match: IfMatch = None
) -> Job:
    """Change name, project, priority, notes or labels of a job, whatever it does: a JSON merge patch. What it trains stays as it is."""
    job = await jobs.find(session, job_id, lock=True)
    await edits.edit(session, job, body, if_match, caller.actor, services.now())
    return await _answer(session, response, job, services.now())


@router.put("/jobs/{job_id}/archive")
async def archive_job(
    job_id: str, response: Response, caller: Member, services: ServicesDep, session: WriteSession, if_match: IfMatch = None
) -> Job:
    """Put an ended job out of sight: lists leave it out unless asked. Nothing of it is deleted."""
    job = await jobs.find(session, job_id, lock=True)
    await edits.archive(session, job, if_match, caller.actor, services.now())
    return await _answer(session, response, job, services.now())


@router.put("/jobs/{job_id}/unarchive")
async def unarchive_job(
    job_id: str, response: Response, caller: Member, services: ServicesDep, session: WriteSession, if_match: IfMatch = None
) -> Job:
    """Bring an archived job back into lists."""
    job = await jobs.find(session, job_id, lock=True)
    await edits.unarchive(session, job, if_match, caller.actor, services.now())
    return await _answer(session, response, job, services.now())


@router.put("/jobs/{job_id}/pause")
async def pause_job(
    job_id: str, response: Response, caller: Member, services: ServicesDep, session: WriteSession, if_match: IfMatch = None
) -> Job:
    """Save at an agreed step, free the slots, stop the ranks."""
    job = await jobs.find(session, job_id, lock=True)
    await jobs.pause(session, job, if_match, caller.actor, services.now())
    return await _answer(session, response, job, services.now())


@router.put("/jobs/{job_id}/resume")
async def resume_job(
    job_id: str, response: Response, caller: Member, services: ServicesDep, session: WriteSession, if_match: IfMatch = None
) -> Job:
    """Queue a paused job again; it continues at the next step."""
    job = await jobs.find(session, job_id, lock=True)
    await jobs.resume(session, job, if_match, caller.actor, services.now())
    return await _answer(session, response, job, services.now())


@router.put("/jobs/{job_id}/resize")
async def resize_job(
    job_id: str, body: Resize, response: Response, caller: Member, services: ServicesDep, session: WriteSession, if_match: IfMatch = None
) -> Job:
    """Set how many ranks the job should have. It follows as soon as there are slots; `pending` says what is missing."""
    job = await jobs.find(session, job_id, lock=True)
    await jobs.resize(session, job, body, if_match, caller.actor, services.now())
    return await _answer(session, response, job, services.now())


@router.delete("/jobs/{job_id}")
async def cancel_job(
    job_id: str, response: Response, caller: Member, services: ServicesDep, session: WriteSession, if_match: IfMatch = None
) -> Job:
    """Stop the job for good; its checkpoints stay. By its owner or an admin."""
    job = await jobs.find(session, job_id, lock=True)
    ownership.require_owner_or_admin(caller, job, services.settings, "cancel it")
    await jobs.cancel(session, job, if_match, caller.actor, services.now())
    return await _answer(session, response, job, services.now())


async def _answer(session: WriteSession, response: Response, row: JobRow, now: datetime) -> Job:
    job = await descriptions.describe(session, row, now)
    response.headers["ETag"] = revisions.etag(job)
    return job
