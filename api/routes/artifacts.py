"""The files that a job leaves for download: TensorBoard event files, and traces, which can be requested."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, StreamingResponse

from paceline.api.core import paging
from paceline.api.core.context import Services
from paceline.api.core.paging import Cursor, Fields, Limit
from paceline.api.deps import Member, ReadSession, ServicesDep, WriteSession
from paceline.api.errors import ProblemError
from paceline.api.routes import files
from paceline.api.routes.heavy import DownloadResponse
from paceline.api.schemas.artifacts import Artifact, ProfileOrder, ProfileRequest
from paceline.api.schemas.common import Page
from paceline.api.services.artifacts import stored_artifacts
from paceline.api.services.history import card_holdings, event_files, media, steps
from paceline.api.services.history.event_files import CardHistory
from paceline.api.services.history.media_event_files import MediaRecords
from paceline.api.services.jobs import jobs, ownership
from paceline.api.services.jobs.idempotency import Once
from paceline.api.services.scheduling import profiles
from paceline.cluster.history.lineage import Line
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import artifacts as artifact_rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import step_records
from paceline.monitoring.artifacts import ArtifactKind

router = APIRouter(prefix="/training", tags=["artifacts"])
ZIP, GZIP, BYTES = "application/zip", "application/gzip", "application/octet-stream"


@router.get("/jobs/{job_id}/tensorboard", response_class=StreamingResponse, responses={200: {"content": {ZIP: {}}}})
async def job_event_files(
    job_id: str,
    session: ReadSession,
    services: ServicesDep,
    first_step: Annotated[int, Query(ge=0, lt=1 << 53, description="leave out the steps before it")] = 0,
) -> DownloadResponse:
    """Every scalar, image and histogram of the job as TensorBoard event files, zipped: each step once, as it stands."""
    job = await jobs.find(session, job_id)
    logged = MediaRecords(services, await media.standing(services, job_id))
    async with services.metrics.read() as points:
        if not await step_records.ranks(points, job_id) and not logged.ranks:
            raise ProblemError(
                "nothing_recorded", f"job {job.name} is {job.state.value} and has reported no step yet; ask again when it has"
            )
        lines = await steps.lines_of(points, job_id, await job_rows.generations_of(session, job_id))
    now = services.now()
    cards = CardHistory(await card_holdings.of_job(session, job, now), now.timestamp(), services.settings.keep.readings)
    return DownloadResponse(
        _event_files(services, job, lines, cards, first_step, logged), media_type=ZIP, headers=attachment(f"{job.name}-tensorboard.zip")
    )


async def _event_files(
    services: Services, job: JobRow, lines: list[Line], cards: CardHistory, first_step: int, logged: MediaRecords
) -> AsyncIterator[bytes]:
    """Write the zip in a session of its own: the route's session is over when the first byte is sent."""
    async with services.metrics.read() as points:
        async for piece in event_files.stream(points, job, lines, cards, first_step, logged):
            yield piece


@router.post("/jobs/{job_id}/profile", status_code=201)
async def profile_job(
    job_id: str, body: ProfileOrder, caller: Member, services: ServicesDep, once: Once, session: WriteSession
) -> ProfileRequest:
    """Have some ranks trace their next steps; the traces come to the job's artifacts."""

    async def create() -> ProfileRequest:
        return await profiles.ask(session, await jobs.find(session, job_id, lock=True), body, caller.actor, services.now())

    return await once.run(session, body, ProfileRequest, create)


@router.get("/jobs/{job_id}/profile")
async def job_profile(job_id: str, session: ReadSession) -> ProfileRequest | None:
    """The newest request, and the ranks that have answered it; null: there was no request."""
    return await profiles.newest(session, await jobs.find(session, job_id))


@router.get("/jobs/{job_id}/artifacts", response_model=Page[Artifact])
async def job_artifacts(
    job_id: str, session: ReadSession, kind: ArtifactKind | None = None, cursor: Cursor = None, limit: Limit = 50, fields: Fields = None
) -> Page[Artifact] | JSONResponse:
    """The job's artifacts, the newest first."""
    await jobs.find(session, job_id)
    key = paging.decode(cursor, str)
    rows = await artifact_rows.page_of_job(session, job_id, kind, str(key[0]) if key else None, limit + 1)
    page = paging.page_of(rows, limit, stored_artifacts.describe, lambda row: (row.id,))
    return paging.only(page, Artifact, fields)


@router.get(
    "/jobs/{job_id}/artifacts/{artifact_id}/content", response_class=StreamingResponse, responses={200: {"content": {GZIP: {}, BYTES: {}}}}
)
async def artifact_content(job_id: str, artifact_id: str, session: ReadSession, services: ServicesDep) -> StreamingResponse:
    """The content of the file, as its rank wrote it."""
    job, row = await jobs.find(session, job_id), await stored_artifacts.find(session, job_id, artifact_id)
    stored_artifacts.require_ready(row)
    if row.path is not None:
        return files.content(services, row, None, None)
    headers = attachment(stored_artifacts.file_name(job.name, row)) | {"Content-Length": str(row.bytes)}
    media_type = BYTES if row.kind == "snapshot" else GZIP
    return StreamingResponse(stored_artifacts.contents(services, row.id), media_type=media_type, headers=headers)


@router.delete("/jobs/{job_id}/artifacts/{artifact_id}", status_code=204)
async def delete_artifact(job_id: str, artifact_id: str, caller: Member, session: ReadSession, services: ServicesDep) -> None:
    """Delete the file for good. By the owner of the job or an admin."""
    ownership.require_owner_or_admin(caller, await jobs.find(session, job_id), services.settings, "delete its artifacts")
    await stored_artifacts.remove(services, await stored_artifacts.find(session, job_id, artifact_id), caller.actor)


def attachment(name: str) -> dict[str, str]:
    """The header of a download. `name` is made of a job's name and the like: nothing in it needs quoting."""
    return {"Content-Disposition": f'attachment; filename="{name}"'}
