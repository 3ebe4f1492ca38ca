"""Images, histograms and tables of a job: which there are, and their contents."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import JSONResponse, Response

from paceline.api.core import paging
from paceline.api.core.lists import numbers
from paceline.api.core.paging import Cursor, Fields, Limit
from paceline.api.deps import ServicesDep
from paceline.api.schemas.common import Page
from paceline.api.schemas.media import JobMedia, MediaAtStep, MediaHistograms, MediaStep
from paceline.api.services.history import media
from paceline.api.services.jobs import jobs
from paceline.monitoring.media import MAX_IMAGES, MediaKind
from paceline.monitoring.points import MAX_NAME_CHARACTERS, MAX_STEP

router = APIRouter(prefix="/training/jobs/{job_id}/media", tags=["history"])
Key = Annotated[str, Query(min_length=1, max_length=MAX_NAME_CHARACTERS, description="under which it was logged")]
#: What an id names never changes.
FOR_EVER = {"Cache-Control": "private, max-age=31536000, immutable", "Content-Security-Policy": "default-src 'none'"}


@router.get("")
async def job_media(
    job_id: str, services: ServicesDep, key: Annotated[str | None, Query(max_length=MAX_NAME_CHARACTERS)] = None
) -> JobMedia:
    """The keys under which ranks have logged images, histograms and tables, with their steps."""
    await _require_job(services, job_id)
    return await media.of_job(services, job_id, key)


@router.get("/steps", response_model=Page[MediaStep])
async def media_steps(
    job_id: str,
    key: Key,
    services: ServicesDep,
    kind: MediaKind | None = None,
    cursor: Cursor = None,
    limit: Limit = 50,
    fields: Fields = None,
) -> Page[MediaStep] | JSONResponse:
    """The objects under a key, step by step and rank by rank, without their contents."""
    await _require_job(services, job_id)
    after = paging.decode(cursor, int)
    found = media.by_step(await media.of_key(services, job_id, key, kind))
    rows = [each for each in found if not after or each.step > int(after[0])][: limit + 1]
    return paging.only(paging.page_of(rows, limit, lambda each: each, lambda each: (each.step,)), MediaStep, fields)


@router.get("/object")
async def media_object(
    job_id: str,
    key: Key,
    services: ServicesDep,
    step: Annotated[int | None, Query(ge=0, le=MAX_STEP, description="default: the newest")] = None,
    rank: Annotated[str | None, Query(description="0,1; default: all")] = None,
    kind: MediaKind | None = None,
) -> MediaAtStep:
    """The objects of ranks under a key at a step: histograms and tables whole, of images all but their files."""
    await _require_job(services, job_id)
    return await media.at_step(services, job_id, key, kind, step, numbers("rank", rank, most=media.MOST_RANKS))


@router.get("/histograms")
async def media_histograms(
    job_id: str,
    key: Key,
    services: ServicesDep,
    rank: Annotated[int, Query(ge=0, lt=1 << 31)] = 0,
    first_step: Annotated[int, Query(ge=0, le=MAX_STEP)] = 0,
    last_step: Annotated[int | None, Query(ge=0, le=MAX_STEP)] = None,
    most: Annotated[int, Query(ge=1, le=media.MOST_HISTOGRAMS)] = 100,
) -> MediaHistograms:
    """A rank's histograms of one key over steps, evenly chosen where there are more than `most`."""
    await _require_job(services, job_id)
    return await media.histograms(services, job_id, key, rank, first_step, last_step, most)


@router.get("/{object_id}/images/{number}", response_class=Response, responses={200: {"content": {"image/png": {}, "image/jpeg": {}}}})
async def media_image(job_id: str, object_id: str, number: Annotated[int, Path(ge=0, lt=MAX_IMAGES)], services: ServicesDep) -> Response:
    """The file of one image."""
    stored, content = await media.image(services, job_id, object_id, number)
    return Response(content, media_type=f"image/{stored.format}", headers=FOR_EVER)


async def _require_job(services: ServicesDep, job_id: str) -> None:
    async with services.control.read() as session:
        await jobs.find(session, job_id)
