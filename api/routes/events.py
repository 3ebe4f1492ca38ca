"""The history, of everything or of one job."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import paging
from paceline.api.core.paging import Fields, Limit
from paceline.api.deps import ReadSession
from paceline.api.errors import not_found
from paceline.api.schemas.events import Event, EventPage
from paceline.api.services.lifecycle import events
from paceline.db.repositories import events as repository
from paceline.db.repositories import jobs as job_rows

router = APIRouter()
After = Annotated[int, Query(ge=0, lt=1 << 63, description="events beyond this seq")]
Tail = Annotated[bool, Query(description="the newest events instead of the oldest; the oldest of them first all the same")]


async def _page(session: AsyncSession, after: int, limit: int, tail: bool, job_id: str | None) -> EventPage:
    read = repository.newest if tail else repository.after
    rows = await read(session, after, limit=limit, job_id=job_id)
    return EventPage(items=[events.describe(row) for row in rows], next_after=rows[-1].seq if rows else after)


@router.get("/events", tags=["events"], response_model=EventPage)
async def list_events(
    session: ReadSession, after: After = 0, limit: Limit = 50, tail: Tail = False, fields: Fields = None
) -> EventPage | JSONResponse:
    return paging.only(await _page(session, after, limit, tail, None), Event, fields)


@router.get("/training/jobs/{job_id}/events", tags=["jobs"], response_model=EventPage)
async def job_events(
    job_id: str, session: ReadSession, after: After = 0, limit: Limit = 50, tail: Tail = False, fields: Fields = None
) -> EventPage | JSONResponse:
    if await job_rows.state_of(session, job_id) is None:
        raise not_found("job", job_id)
    return paging.only(await _page(session, after, limit, tail, job_id), Event, fields)
