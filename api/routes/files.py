"""The files that a job leaves in $PACELINE_ARTIFACTS: by folder, one by one, or a folder as a zip."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from paceline.api.core.context import Services
from paceline.api.core.paging import Cursor
from paceline.api.deps import Member, ReadSession, ServicesDep
from paceline.api.errors import ProblemError
from paceline.api.routes.heavy import DownloadResponse
from paceline.api.schemas.artifacts import FolderPage
from paceline.api.services.artifacts import downloads, folders, stored_artifacts
from paceline.api.services.artifacts.media_types import UNKNOWN, media_type_of
from paceline.api.services.jobs import jobs, ownership
from paceline.db.models.artifacts import ArtifactRow
from paceline.db.repositories import artifact_files

router = APIRouter(prefix="/training/jobs/{job_id}/files", tags=["artifacts"])
ZIP = "application/zip"

FilePath = Annotated[str, Query(description="of a file in the job: rank0/eval/scores.csv", min_length=1, max_length=2000)]
Prefix = Annotated[str, Query(description="a folder in the job; empty: all of it", max_length=2000)]
Range = Annotated[str | None, Header(description="a part of it: bytes=0-1023", max_length=200)]


@router.get("")
async def job_files(
    job_id: str,
    session: ReadSession,
    prefix: Prefix = "",
    recursive: Annotated[bool, Query(description="`items` has the files of all folders below it, too")] = False,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> FolderPage:
    """A folder of the job's files: its folders, each with all that is in it, and a page of its own files."""
    await jobs.find(session, job_id)
    return await folders.page(session, job_id, prefix, cursor, limit, recursive=recursive)


@router.get("/content", response_class=StreamingResponse, responses={200: {"content": {UNKNOWN: {}}}, 206: {"content": {UNKNOWN: {}}}})
async def file_content(
    job_id: str,
    path: FilePath,
    session: ReadSession,
    services: ServicesDep,
    range: Range = None,
    if_range: Annotated[str | None, Header(description="ETag that the part must be of; else all of it comes", max_length=200)] = None,
) -> StreamingResponse:
    """The content of a file, or a part of it."""
    await jobs.find(session, job_id)
    row = await folders.find(session, job_id, path, way_out="take it as an archive: files/archive?prefix=...")
    return content(services, row, range, if_range)


@router.get("/archive", response_class=StreamingResponse, responses={200: {"content": {ZIP: {}}}})
async def folder_archive(job_id: str, session: ReadSession, services: ServicesDep, prefix: Prefix = "") -> DownloadResponse:
    """All files of a folder, and of those below it, as a zip."""
    job, folder = await jobs.find(session, job_id), folders.folder_of(prefix)
    if not await artifact_files.below(session, job_id, folder, None, 1):
        where = f"in {folder!r}" if folder else "in its artifacts"
        raise ProblemError("nothing_recorded", f"job {job.name} has no files {where}; what it leaves in $PACELINE_ARTIFACTS comes here")
    name = "-".join([job.name, *folder.split("/")]) if folder else f"{job.name}-artifacts"
    return DownloadResponse(downloads.archive(services, job_id, folder), media_type=ZIP, headers=downloads.attachment(f"{name}.zip"))


@router.delete("", status_code=204)
async def delete_file(job_id: str, path: FilePath, caller: Member, session: ReadSession, services: ServicesDep) -> None:
    """Delete the file for good. By the owner of the job or an admin."""
    ownership.require_owner_or_admin(caller, await jobs.find(session, job_id), services.settings, "delete its artifacts")
    row = await folders.find(session, job_id, path, way_out="delete its files one by one")
    await stored_artifacts.remove(services, row, caller.actor)


def content(services: Services, row: ArtifactRow, range: str | None, if_range: str | None) -> StreamingResponse:
    """The answer with a file's content, or with a part of it."""
    headers = downloads.headers_of(row)
    wanted = downloads.range_of(range if if_range in (None, headers["ETag"]) else None, row.bytes)
    return StreamingResponse(
        downloads.part(services, row.id, wanted),
        status_code=206 if wanted.is_part else 200,
        media_type=media_type_of(row.path or ""),
        headers=headers | wanted.headers,
    )
