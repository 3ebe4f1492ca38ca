"""How far a reader of an append-only table is behind."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.models.events import EventRow
from paceline.db.models.metrics import LogLineRow, MetricRecordRow
from paceline.db.models.readings import NodeReadingRow

Appended = type[EventRow] | type[LogLineRow] | type[MetricRecordRow] | type[NodeReadingRow]


async def has_more_than(session: AsyncSession, table: Appended, most: int, *, after: int, owner: str | None) -> bool:
    """Whether more than `most` rows of a job, or node, lie beyond `after`; None: of all. Looks at no more than that many."""
    query = select(table.seq).where(table.seq > after).order_by(table.seq).offset(most).limit(1)
    if owner is not None:
        query = query.where((table.node_id if issubclass(table, NodeReadingRow) else table.job_id) == owner)
    return await session.scalar(query) is not None
