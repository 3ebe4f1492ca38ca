"""Jobs: submit, list, look at, pause, resume, resize, cancel."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse

from paceline.api.core import paging
from paceline.api.core.paging import Cursor, Fields, Limit
from paceline.api.deps import IfMatch, Member, ReadSession, ServicesDep, WriteSession
from paceline.api.middleware.spec_body import SpecRoute
from paceline.api.schemas.common import Page
from paceline.api.schemas.jobs import Job, JobSummary, Resize
from paceline.api.services.jobs import jobs, notices, ownership, revisions, submission
from paceline.api.services.jobs.idempotency import Once
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import jobs as job_rows
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


@router.get("/jobs", response_model=Page[JobSummary])
async def list_jobs(
    request: Request,
    session: ReadSession,
    services: ServicesDep,
    cursor: Cursor = None,
    limit: Limit = 50,
    status: Annotated[str | None, Query(description="states, comma-separated")] = None,
    project: str | None = None,
    q: Annotated[str | None, Query(description="part of a name, or an id", max_length=200)] = None,
    experiment: Annotated[str | None, Query(description="id of an experiment: the jobs of its trials")] = None,
    sort: Sort = "-created_at",
    fields: Fields = None,
) -> Page[JobSummary] | JSONResponse:
    """List jobs. Labels are filtered with `label.KEY=VALUE`."""
    labels = jobs.parse_labels(request.query_params.multi_items())
    wanted = job_rows.JobFilter(jobs.parse_states(status), project, q, labels, experiment)
    column, descending = sort.removeprefix("-"), sort.startswith("-")
    after = _after(cursor, column)
    rows = await job_rows.page(session, wanted, sort=column, descending=descending, after=after, limit=limit + 1)
    told = await notices.of_jobs(session, rows, services.now())
    page = paging.page_of(rows, limit, lambda job: jobs.summarize(job, told[job.id]), lambda job: _sort_key(job, column))
    return paging.only(page, JobSummary, fields)


def _sort_key(job: JobRow, column: str) -> tuple[paging.Key, str]:
    value = getattr(job, column)
    return (value.isoformat() if isinstance(value, datetime) else value, job.id)


def _after(cursor: str | None, column: str) -> tuple[Any, str] | None:
    key = paging.decode(cursor, int if column == "priority" else str, str)
    if key is None:
        return None
    return (paging.moment(key[0]) if column == "created_at" else key[0], str(key[1]))


@router.get("/jobs/{job_id}", responses={304: {"description": "the job is as you have it"}})
async def get_job(job_id: str, response: Response, services: ServicesDep, session: ReadSession, if_none_match: IfNoneMatch = None) -> Job:
    job = await jobs.describe(session, await jobs.find(session, job_id), services.now())
    response.headers["ETag"] = etag = revisions.etag(job)
    if revisions.is_had(etag, if_none_match):
        response.status_code = 304
    return job


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
    job = await jobs.describe(session, row, now)
    response.headers["ETag"] = revisions.etag(job)
    return job
