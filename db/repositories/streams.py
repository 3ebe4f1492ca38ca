"""How far a reader of an append-only table is behind."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.models.events import EventRow
from paceline.db.models.metrics import LogLineRow, MetricRecordRow

Appended = type[EventRow] | type[LogLineRow] | type[MetricRecordRow]


async def has_more_than(session: AsyncSession, table: Appended, most: int, *, after: int, job_id: str | None) -> bool:
    """Whether more than `most` rows lie beyond `after`; looks at no more than that many."""
    query = select(table.seq).where(table.seq > after).order_by(table.seq).offset(most).limit(1)
    if job_id is not None:
        query = query.where(table.job_id == job_id)
    return await session.scalar(query) is not None
