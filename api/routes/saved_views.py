"""Named views of the list of jobs: list, save, delete."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from paceline.api.deps import Member, ReadSession, ServicesDep, WriteSession
from paceline.api.schemas.job_lists import VIEW_NAME, SavedView, SaveView
from paceline.api.services.jobs import saved_views as service

router = APIRouter(prefix="/training/saved-views", tags=["jobs"])
NewName = Annotated[str, Path(), VIEW_NAME]
SavedName = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f/]+$")]


@router.get("")
async def list_saved_views(session: ReadSession) -> list[SavedView]:
    """All named views of the list of jobs, in order of their names."""
    return await service.all_views(session)


@router.put("/{name:path}")
async def save_view(name: NewName, body: SaveView, caller: Member, services: ServicesDep, session: WriteSession) -> SavedView:
    """Save a view under this name, or change the one that there is: its owner or an admin may."""
    return await service.save(session, name, body.query, caller, services.settings, services.now())


@router.delete("/{name:path}", status_code=204)
async def delete_view(name: SavedName, caller: Member, services: ServicesDep, session: WriteSession) -> None:
    """Delete a view, by its owner or an admin."""
    await service.delete(session, name, caller, services.settings, services.now())
