"""Named views of the list of jobs, which everybody sees. A view is its owner's and the admins' to change."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.identity import Caller
from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.job_lists import SavedView
from paceline.api.services.jobs import ownership
from paceline.api.services.lifecycle import events
from paceline.api.settings import Settings
from paceline.db.models.saved_views import SavedViewRow
from paceline.db.repositories import saved_views as rows

#: All of them together: they are shown as one list.
MOST_VIEWS = 200


def describe(row: SavedViewRow) -> SavedView:
    return SavedView(name=row.name, query=row.query, created_by=row.created_by, created_by_id=row.created_by_id, created_at=row.created_at)


async def all_views(session: AsyncSession) -> list[SavedView]:
    return [describe(row) for row in await rows.all_by_name(session)]


async def save(session: AsyncSession, name: str, query: str, caller: Caller, settings: Settings, now: datetime) -> SavedView:
    """Save a view, or change the one of this name. Raises not_the_owner."""
    row = await rows.named(session, name)
    if row is not None:
        ownership.require_owner_or_admin_of(caller, "view", row, settings, "change it")
        before, row.query = row.query, query
        await _record(session, row, "view.saved", f"changed the view {row.name} of {row.created_by}", caller, now, former_query=before)
        return describe(row)
    if len(await rows.all_by_name(session)) >= MOST_VIEWS:
        raise ProblemError("invalid_request", f"there are {MOST_VIEWS} saved views, which is the limit; delete one first")
    row = SavedViewRow(name=name, query=query, created_by=caller.name, created_by_id=caller.user_id, created_at=now)
    session.add(row)
    await session.flush()
    await _record(session, row, "view.saved", f"saved the view {row.name}", caller, now)
    return describe(row)


async def delete(session: AsyncSession, name: str, caller: Caller, settings: Settings, now: datetime) -> None:
    """Delete a view. Raises not_found, and not_the_owner."""
    row = await rows.named(session, name)
    if row is None:
        raise not_found("view", name)
    ownership.require_owner_or_admin_of(caller, "view", row, settings, "delete it")
    await session.delete(row)
    await _record(session, row, "view.deleted", f"deleted the view {row.name} of {row.created_by}", caller, now)


async def _record(session: AsyncSession, row: SavedViewRow, type: str, did: str, caller: Caller, now: datetime, **data: str) -> None:
    facts = {"name": row.name, "query": row.query, **data}
    await events.record(session, type=type, actor=caller.actor, cause="request", message=f"{caller.name} {did}", data=facts, time=now)
