"""Queries about named views of the list of jobs."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.models.saved_views import SavedViewRow


async def all_by_name(session: AsyncSession) -> Sequence[SavedViewRow]:
    return (await session.scalars(select(SavedViewRow).order_by(SavedViewRow.name))).all()


async def named(session: AsyncSession, name: str) -> SavedViewRow | None:
    return (await session.scalars(select(SavedViewRow).where(SavedViewRow.name == name))).one_or_none()
