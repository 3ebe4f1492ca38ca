"""Queries about the charts of projects."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.models.charts import ChartRow


async def of_project(session: AsyncSession, project: str, *, lock: bool = False) -> Sequence[ChartRow]:
    """The charts of a project, in their order. `lock`: no other transaction changes them meanwhile. They are locked in id order: whoever waits for
    one may find that it has another position since."""
    query = select(ChartRow).where(ChartRow.project == project).order_by(ChartRow.id)
    found = await session.scalars(query.with_for_update() if lock else query)
    return sorted(found, key=lambda row: (row.position, row.id))


async def get(session: AsyncSession, chart_id: str) -> ChartRow | None:
    return await session.get(ChartRow, chart_id)


async def get_locked(session: AsyncSession, chart_id: str) -> ChartRow | None:
    return await session.get(ChartRow, chart_id, with_for_update=True, populate_existing=True)


async def last_position(session: AsyncSession, project: str) -> int:
    """The highest position in a project; -1 where it has no chart."""
    found = await session.scalar(select(func.max(ChartRow.position)).where(ChartRow.project == project))
    return -1 if found is None else int(found)
