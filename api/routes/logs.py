"""Log lines of a job: pages, search, tail, download."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from paceline.api.core.lists import members, numbers
from paceline.api.deps import ReadSession, ServicesDep
from paceline.api.errors import not_found
from paceline.api.routes.heavy import DownloadResponse
from paceline.api.schemas.jobs import LogPage
from paceline.api.services.history import log_pages
from paceline.db.repositories import logs as repository
from paceline.db.repositories.logs import LogQuery

router = APIRouter(prefix="/training/jobs/{job_id}/logs", tags=["jobs"])
LEVELS = ("debug", "info", "warning", "error")
MAX_RANKS = 256
Seq = Annotated[int, Query(ge=0, lt=1 << 63)]


@router.get("")
async def job_logs(
    job_id: str,
    session: ReadSession,
    services: ServicesDep,
    after: Seq = 0,
    before: Annotated[int | None, Query(ge=0, lt=1 << 63)] = None,
    limit: Annotated[int, Query(ge=1, le=2000)] = 500,
    rank: Annotated[str | None, Query(description="0,1")] = None,
    level: Annotated[str | None, Query(description="warning,error")] = None,
    q: Annotated[str | None, Query(max_length=200, description="lines that contain this, in any case")] = None,
    tail: Annotated[bool, Query(description="the newest lines instead of the oldest")] = False,
) -> LogPage:
    if await repository.job_state(session, job_id) is None:
        raise not_found("job", job_id)
    where = LogQuery(ranks=numbers("rank", rank, most=MAX_RANKS), levels=members("level", level, LEVELS), contains=q)
    complete = await repository.is_complete(session, job_id)  # before the lines: whatever was stored by then is in them
    async with services.metrics.read() as lines:
        return await log_pages.page(lines, job_id, after=after, before=before, limit=limit, tail=tail, where=where, complete=complete)


@router.get("/download", response_class=StreamingResponse, responses={200: {"content": {"text/plain": {}}}})
async def download_logs(job_id: str, session: ReadSession, services: ServicesDep) -> DownloadResponse:
    if await repository.job_state(session, job_id) is None:
        raise not_found("job", job_id)
    return DownloadResponse(
        log_pages.as_text(services, job_id),
        media_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{job_id}.log"'},
    )
