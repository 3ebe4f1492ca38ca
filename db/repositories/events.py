"""The append-only history: append and read.

Hazard: on PostgreSQL a sequence hands out numbers before their transactions commit, so a reader could see 8, remember it, and
never see 7. `append` therefore takes one lock until commit: `seq` order is commit order, and a cursor misses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from db.models.events import EventRow

_EVENTS_LOCK = 0x7061_6365_0001


async def append(session: AsyncSession, event: EventRow) -> EventRow:
    """Add one event to the running transaction; `event.seq` is set on return."""
    if session.get_bind().dialect.name == "postgresql":
        await session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _EVENTS_LOCK})
    session.add(event)
    await session.flush()
    return event


async def after(session: AsyncSession, seq: int, *, limit: int, job_id: str | None = None) -> list[EventRow]:
    """Events beyond `seq`, oldest first."""
    query = select(EventRow).where(EventRow.seq > seq).order_by(EventRow.seq).limit(limit)
    if job_id is not None:
        query = query.where(EventRow.job_id == job_id)
    return list((await session.scalars(query)).all())


async def newest_of_job(session: AsyncSession, job_id: str, type: str) -> EventRow | None:
    query = select(EventRow).where(EventRow.job_id == job_id, EventRow.type == type).order_by(EventRow.seq.desc()).limit(1)
    return (await session.scalars(query)).first()


async def newest_seq(session: AsyncSession) -> int:
    return (await session.scalar(select(func.max(EventRow.seq)))) or 0


async def states_of_job(session: AsyncSession, job_id: str) -> Sequence[EventRow]:
    """The job's own events that tell its state, oldest first: what its ranks told is left out."""
    told_by_ranks = ("job.evaluated", "job.sample", "job.carried_on")
    query = select(EventRow).where(EventRow.job_id == job_id, EventRow.type.like("job.%"), EventRow.type.not_in(told_by_ranks))
    return [event for event in await session.scalars(query.order_by(EventRow.seq)) if "state" in event.data]
