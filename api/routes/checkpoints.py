"""Checkpoints: look at, pin, delete, restore."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from paceline.api.core import paging
from paceline.api.core.paging import Cursor, Fields, Limit
from paceline.api.deps import IfMatch, Member, ReadSession, ServicesDep, WriteSession
from paceline.api.routes.heavy import DownloadResponse
from paceline.api.schemas.checkpoints import Checkpoint, CheckpointFiles, ListedCheckpoint, RestoreRequest
from paceline.api.schemas.common import Page
from paceline.api.schemas.jobs import Job
from paceline.api.services.artifacts import downloads
from paceline.api.services.checkpoints import checkpoints, contents
from paceline.api.services.jobs import descriptions, jobs, ownership, revisions, setting_back, submission
from paceline.api.services.jobs.idempotency import Once
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.repositories import checkpoints as checkpoint_rows
from paceline.db.repositories import nodes as node_rows

router = APIRouter(prefix="/checkpoints", tags=["checkpoints"])
TAR, SAFETENSORS = "application/x-tar", "application/octet-stream"


@router.get("", response_model=Page[ListedCheckpoint])
async def list_checkpoints(
    session: ReadSession,
    cursor: Cursor = None,
    limit: Limit = 50,
    state: Annotated[str | None, Query(description="states, comma-separated; default: what is on disk")] = None,
    q: Annotated[str | None, Query(description="part of the job's name, or its id", max_length=200)] = None,
    fields: Fields = None,
) -> Page[ListedCheckpoint] | JSONResponse:
    """The checkpoints of all jobs, the newest first."""
    key = paging.decode(cursor, str, str)
    after = (paging.moment(key[0]), str(key[1])) if key else None
    rows = await checkpoint_rows.page(session, q, checkpoints.parse_states(state), after, limit + 1)
    described = await checkpoints.describe_listed(session, rows[:limit])
    page = paging.page_of(rows, limit, lambda row: described[row[0].id], lambda row: (row[0].created_at.isoformat(), row[0].id))
    return paging.only(page, ListedCheckpoint, fields)


@router.get("/jobs/{job_id}", response_model=Page[Checkpoint])
async def job_checkpoints(
    job_id: str, session: ReadSession, cursor: Cursor = None, limit: Limit = 50, fields: Fields = None
) -> Page[Checkpoint] | JSONResponse:
    """The job's checkpoints, the newest first; without deleted ones."""
    await jobs.find(session, job_id)
    key = paging.decode(cursor, int, str)
    rows = await checkpoint_rows.page_of_job(session, job_id, (int(key[0]), str(key[1])) if key else None, limit + 1)
    described = {each.id: each for each in await checkpoints.describe(session, rows)}
    page = paging.page_of(rows, limit, lambda row: described[row.id], lambda row: (row.step, row.id))
    return paging.only(page, Checkpoint, fields)


@router.get("/{checkpoint_id}")
async def get_checkpoint(checkpoint_id: str, session: ReadSession) -> Checkpoint:
    return await checkpoints.describe_one(session, await checkpoints.find(session, checkpoint_id))


@router.get("/{checkpoint_id}/files")
async def checkpoint_files(checkpoint_id: str, services: ServicesDep, session: ReadSession) -> CheckpointFiles:
    """The files of the checkpoint, or why they cannot be downloaded from here."""
    row = await checkpoints.find(session, checkpoint_id)
    return await contents.describe(services, row, await _node_name(session, row), await _store_options(session, row))


@router.get("/{checkpoint_id}/download", response_class=StreamingResponse, responses={200: {"content": {TAR: {}, SAFETENSORS: {}}}})
async def download_checkpoint(
    checkpoint_id: str,
    request: Request,
    services: ServicesDep,
    session: ReadSession,
    format: Annotated[
        Literal["checkpoint", "safetensors"],
        Query(description="checkpoint: its folder in a tar; safetensors: the weights alone, a single file, or a tar of several"),
    ] = "checkpoint",
) -> DownloadResponse:
    """Download the checkpoint, where the coordinator's machine sees its folder, or may read the object store that it is in."""
    row = await checkpoints.find(session, checkpoint_id)
    job = await jobs.find(session, row.job_id)
    options = checkpoints.store_options(job)
    files = await contents.files_of(services, row, await _node_name(session, row), options)
    name = f"{job.name}-step{row.step}"
    if format == "checkpoint" or getattr(request.state, "head", False):
        return _tar(files, f"{name}.tar")
    async with request.app.state.downloads.turn():
        scratch, files = await contents.export(row, options)
    if len(files) > 1:
        return _tar(files, f"{name}-safetensors.tar", scratch)
    headers = downloads.attachment(f"{name}.safetensors") | {"Content-Length": str(files[0].size)}
    return DownloadResponse(contents.content(files[0]), media_type=SAFETENSORS, headers=headers, scratch=scratch)


def _tar(files: list[contents.PackedFile], name: str, scratch: Path | None = None) -> DownloadResponse:
    headers = downloads.attachment(name) | {"Content-Length": str(contents.tar_bytes(files))}
    return DownloadResponse(contents.tar(files), media_type=TAR, headers=headers, scratch=scratch)


async def _store_options(session: ReadSession, row: CheckpointRow) -> dict[str, str]:
    return checkpoints.store_options(await jobs.find(session, row.job_id))


async def _node_name(session: ReadSession, row: CheckpointRow) -> str:
    node = await node_rows.get(session, row.node_id)
    return row.node_id if node is None else node.name


@router.put("/{checkpoint_id}/pin")
async def pin_checkpoint(checkpoint_id: str, caller: Member, services: ServicesDep, session: WriteSession) -> Checkpoint:
    """Pin the checkpoint: retention never deletes a pinned one."""
    row = await checkpoints.pin(session, checkpoint_id, True, caller.actor, services.now())
    return await checkpoints.describe_one(session, row)


@router.put("/{checkpoint_id}/unpin")
async def unpin_checkpoint(checkpoint_id: str, caller: Member, services: ServicesDep, session: WriteSession) -> Checkpoint:
    """Unpin the checkpoint, by the owner of its job or an admin: retention may delete it then."""
    await _require_owner(session, caller, services, checkpoint_id, "unpin its checkpoints")
    row = await checkpoints.pin(session, checkpoint_id, False, caller.actor, services.now())
    return await checkpoints.describe_one(session, row)


@router.delete("/{checkpoint_id}", status_code=202)
async def delete_checkpoint(
    checkpoint_id: str,
    caller: Member,
    services: ServicesDep,
    session: WriteSession,
    confirm: Annotated[bool, Query(description="delete it although something depends on it")] = False,
) -> Checkpoint:
    """Delete the checkpoint. Its folder is removed by the node that wrote it. By the owner of its job or an admin."""
    await _require_owner(session, caller, services, checkpoint_id, "delete its checkpoints")
    row = await checkpoints.delete(session, checkpoint_id, caller.actor, services.now(), confirm=confirm)
    return await checkpoints.describe_one(session, row)


async def _require_owner(session: WriteSession, caller: Member, services: ServicesDep, checkpoint_id: str, what: str) -> None:
    row = await checkpoints.find(session, checkpoint_id)
    ownership.require_owner_or_admin(caller, await jobs.find(session, row.job_id), services.settings, what)


@router.post("/{checkpoint_id}/restore", status_code=201, responses={200: {"model": Job, "description": "the job was set back in place"}})
async def restore_checkpoint(
    checkpoint_id: str,
    response: Response,
    caller: Member,
    services: ServicesDep,
    once: Once,
    session: WriteSession,
    body: RestoreRequest | None = None,
    if_match: IfMatch = None,
) -> Job:
    """Submit a new job that continues from the checkpoint (201). With `in_place`, queue the checkpoint's own job again, which then
    continues from it (200): by its owner or an admin. Needs no body: every field has a default."""
    request = body or RestoreRequest()

    async def restore() -> Job:
        if request.in_place:
            await _require_owner(session, caller, services, checkpoint_id, "set it back")
            job = await setting_back.set_back(session, checkpoint_id, request, if_match, caller.actor, services.now())
        else:
            row = await checkpoints.find(session, checkpoint_id, lock=True)
            spec = await checkpoints.restored_spec(session, row, request)
            job = await submission.continue_from(session, row, spec, caller.actor, services.now())
        return await descriptions.describe(session, job, services.now())

    job = await once.run(session, request, Job, restore)
    response.status_code = 200 if request.in_place else 201
    response.headers["ETag"] = revisions.etag(job)
    response.headers["Location"] = f"/api/v1/training/jobs/{job.id}"
    return job
