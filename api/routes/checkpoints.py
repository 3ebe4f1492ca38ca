"""Checkpoints: look at, pin, delete, restore."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from paceline.api.core import paging
from paceline.api.core.paging import Cursor, Limit
from paceline.api.deps import Member, ReadSession, ServicesDep, WriteSession
from paceline.api.schemas.checkpoints import Checkpoint, RestoreRequest
from paceline.api.schemas.common import Page
from paceline.api.schemas.jobs import Job
from paceline.api.services.checkpoints import checkpoints
from paceline.api.services.jobs import jobs, ownership, revisions
from paceline.api.services.jobs.idempotency import Once
from paceline.api.services.lifecycle import job_lifecycle
from paceline.db.repositories import checkpoints as checkpoint_rows

router = APIRouter(prefix="/checkpoints", tags=["checkpoints"])


@router.get("/jobs/{job_id}")
async def job_checkpoints(job_id: str, session: ReadSession, cursor: Cursor = None, limit: Limit = 50) -> Page[Checkpoint]:
    """The job's checkpoints, the newest first; without deleted ones."""
    await jobs.find(session, job_id)
    key = paging.decode(cursor, int, str)
    rows = await checkpoint_rows.page_of_job(session, job_id, (int(key[0]), str(key[1])) if key else None, limit + 1)
    described = {each.id: each for each in await checkpoints.describe(session, rows)}
    return paging.page_of(rows, limit, lambda row: described[row.id], lambda row: (row.step, row.id))


@router.get("/{checkpoint_id}")
async def get_checkpoint(checkpoint_id: str, session: ReadSession) -> Checkpoint:
    return await checkpoints.describe_one(session, await checkpoints.find(session, checkpoint_id))


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


@router.post("/{checkpoint_id}/restore", status_code=201)
async def restore_checkpoint(
    checkpoint_id: str, body: RestoreRequest, response: Response, caller: Member, services: ServicesDep, once: Once, session: WriteSession
) -> Job:
    """Submit a new job that continues from the checkpoint."""

    async def create() -> Job:
        row = await checkpoints.find(session, checkpoint_id, lock=True)
        spec = await checkpoints.restored_spec(session, row, body)
        job = await job_lifecycle.submit(session, spec, caller.actor, services.now(), restored_from=row)
        return await jobs.describe(session, job, services.now())

    job = await once.run(session, body, Job, create)
    response.headers["ETag"] = revisions.etag(job)
    response.headers["Location"] = f"/api/v1/training/jobs/{job.id}"
    return job
