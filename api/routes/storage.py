"""Shows what is stored, and deletes the data of an ended job."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from paceline.api.deps import Member, ReadSession, ServicesDep, WriteSession
from paceline.api.schemas.storage import DataRemoval, Storage
from paceline.api.services.jobs import jobs, ownership
from paceline.api.services.storage import removals
from paceline.api.services.storage import storage as service

router = APIRouter(tags=["storage"])


@router.get("/cluster/storage")
async def cluster_storage(services: ServicesDep, session: ReadSession) -> Storage:
    """The space that points, curves, log lines, traces and gradients take, how long they are kept, and the disk."""
    return await service.report(services, session)


@router.delete("/training/jobs/{job_id}/data", status_code=202)
async def delete_job_data(
    job_id: str,
    caller: Member,
    services: ServicesDep,
    session: WriteSession,
    checkpoints: Annotated[bool, Query(description="delete its checkpoints as well")] = False,
) -> DataRemoval:
    """Delete the points, curves, log lines, traces, gradients, media and all files of `$PACELINE_ARTIFACTS` of an ended job for good, by its owner
    or an admin. The job, its history and its failure stay. It goes on in the background: `GET .../jobs/{job_id}` has it as `data_removal`."""
    ownership.require_owner_or_admin(caller, await jobs.find(session, job_id), services.settings, "delete its data")
    return await removals.ask(session, job_id, caller.actor, services.now(), with_checkpoints=checkpoints)
