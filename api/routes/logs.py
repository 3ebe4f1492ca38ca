"""Log lines of a job: pages, search, tail, download."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse

from paceline.api.core.lists import members, numbers, require_ranks, require_zone
from paceline.api.deps import ReadSession, ServicesDep
from paceline.api.errors import ProblemError, not_found
from paceline.api.routes.heavy import DownloadResponse
from paceline.api.schemas.jobs import LogPage
from paceline.api.services.history import log_pages
from paceline.api.services.history.log_pages import LogRange, LogSearch
from paceline.api.services.history.log_patterns import BadPatternError, LinePattern
from paceline.cluster.states import TERMINAL_JOB_STATES
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import logs as log_rows
from paceline.db.repositories.logs import LogQuery

router = APIRouter(prefix="/training/jobs/{job_id}/logs", tags=["jobs"])
LEVELS = ("debug", "info", "warning", "error")
MAX_RANKS = 256
Seq = Annotated[int, Query(ge=0, lt=1 << 63)]
Moment = Annotated[datetime | None, Query(description="with a time zone")]


def log_range(
    after: Seq = 0,
    before: Annotated[int | None, Query(ge=0, lt=1 << 63)] = None,
    limit: Annotated[int, Query(ge=1, le=2000)] = 500,
    tail: Annotated[bool, Query(description="the newest lines instead of the oldest")] = False,
) -> LogRange:
    return LogRange(after=after, before=before, limit=limit, tail=tail)


def log_search(
    rank: Annotated[str | None, Query(description="0,1")] = None,
    level: Annotated[str | None, Query(description="warning,error")] = None,
    q: Annotated[str | None, Query(max_length=200, description="lines that contain this, in any case")] = None,
    regex: Annotated[bool, Query(description="q is a regular expression, in RE2's syntax")] = False,
    context: Annotated[int, Query(ge=0, le=50, description="so many lines of the same rank before and after each that matches")] = 0,
    since: Moment = None,
    until: Moment = None,
) -> LogSearch:
    require_zone("since", since)
    require_zone("until", until)
    where = LogQuery(
        ranks=numbers("rank", rank, most=MAX_RANKS),
        levels=members("level", level, LEVELS),
        contains=None if regex else q,
        since=since.timestamp() if since else None,
        until=until.timestamp() if until else None,
    )
    return LogSearch(where, _pattern(q) if regex and q else None, context)


@router.get("")
async def job_logs(
    job_id: str,
    session: ReadSession,
    services: ServicesDep,
    within: Annotated[LogRange, Depends(log_range)],
    search: Annotated[LogSearch, Depends(log_search)],
    line: Annotated[
        int | None, Query(ge=1, lt=1 << 63, description="instead of after: begin at this line of the whole log, counted from 1")
    ] = None,
) -> LogPage:
    job = await job_rows.get(session, job_id)
    if job is None:
        raise not_found("job", job_id)
    require_ranks("rank", search.where.ranks or (), max(job.world_size, await job_rows.largest_world(session, job_id)))
    complete = await log_rows.is_complete(session, job_id)  # before the lines: whatever was stored by then is in them
    async with services.metrics.read() as lines:
        if line is not None:
            within = await log_pages.from_line(lines, job_id, within, line)
        return await log_pages.page(lines, job_id, within, search, complete=complete, ended=job.state in TERMINAL_JOB_STATES)


@router.get("/download", response_class=StreamingResponse, responses={200: {"content": {"text/plain": {}}}})
async def download_logs(job_id: str, session: ReadSession, services: ServicesDep) -> DownloadResponse:
    if await job_rows.state_of(session, job_id) is None:
        raise not_found("job", job_id)
    return DownloadResponse(
        log_pages.as_text(services, job_id),
        media_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{job_id}.log"'},
    )


def _pattern(expression: str) -> LinePattern:
    try:
        return LinePattern(expression)
    except BadPatternError as error:
        raise ProblemError("invalid_parameter", f"{expression!r} is not a valid regular expression: {error}") from error
