"""The append-only history: append and read.

Hazard: on PostgreSQL a sequence hands out numbers before their transactions commit, so a reader could see 8, remember it, and
never see 7. `append` therefore takes one lock until commit: `seq` order is commit order, and a cursor misses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.dialects import is_postgres
from paceline.db.models.events import IS_BY_PEOPLE, IS_PLANNED, EventRow

_EVENTS_LOCK = 0x7061_6365_0001
_LOCKED_BY = "paceline_events_locked_by"


async def append(session: AsyncSession, event: EventRow) -> None:
    """Add one event to the running transaction. It is written, and has its `seq`, with the next flush: many events are one statement."""
    if is_postgres(session):
        await _lock(session)
    session.add(event)


async def _lock(session: AsyncSession) -> None:
    """Take the lock, once in each transaction: a savepoint that is rolled back gives up what it has taken."""
    transaction = session.sync_session.get_nested_transaction() or session.sync_session.get_transaction()
    if transaction is None or session.info.get(_LOCKED_BY) is not transaction:
        await session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _EVENTS_LOCK})
        session.info[_LOCKED_BY] = session.sync_session.get_nested_transaction() or session.sync_session.get_transaction()


async def recount(session: AsyncSession, seq: int, message: str, data: dict[str, Any]) -> None:
    """Give an event that counts the message with its new count. Who follows the history has seen it with the first one, which is what it is
    about."""
    await session.execute(update(EventRow).where(EventRow.seq == seq).values(message=message, data=data))


async def after(session: AsyncSession, seq: int, *, limit: int, job_id: str | None = None) -> list[EventRow]:
    """Events beyond `seq`, the oldest first."""
    query = select(EventRow).where(EventRow.seq > seq).order_by(EventRow.seq).limit(limit)
    if job_id is not None:
        query = query.where(EventRow.job_id == job_id)
    return list((await session.scalars(query)).all())


async def newest(session: AsyncSession, after: int, *, limit: int, job_id: str | None = None) -> list[EventRow]:
    """The newest events beyond `after`, the oldest of them first."""
    query = select(EventRow).where(EventRow.seq > after).order_by(EventRow.seq.desc()).limit(limit)
    if job_id is not None:
        query = query.where(EventRow.job_id == job_id)
    return list((await session.scalars(query)).all())[::-1]


async def by_people(session: AsyncSession, *, user: str | None, action: str | None, before: int | None, limit: int) -> Sequence[EventRow]:
    """Actions of people, the newest first: by this user alone, of this type or of this noun (the types `action.*`), before this `seq`."""
    query = select(EventRow).where(IS_BY_PEOPLE).order_by(EventRow.seq.desc()).limit(limit)
    if user is not None:
        query = query.where(EventRow.actor_name == user)
    if action is not None:
        query = query.where(or_(EventRow.type == action, EventRow.type.startswith(f"{action}.", autoescape=True)))
    if before is not None:
        query = query.where(EventRow.seq < before)
    return (await session.scalars(query)).all()


async def planned(session: AsyncSession, job_id: str) -> EventRow | None:
    """The newest event that records the strategy that auto chose for a job."""
    query = select(EventRow).where(EventRow.job_id == job_id, IS_PLANNED).order_by(EventRow.seq.desc()).limit(1)
    return (await session.scalars(query)).first()


async def has_any(session: AsyncSession, job_id: str, *types: str) -> bool:
    """Whether a job has an event of one of these types. Reads the job's events: ask seldom."""
    query = select(EventRow.seq).where(EventRow.job_id == job_id, EventRow.type.in_(types)).limit(1)
    return (await session.scalar(query)) is not None


async def has_any_about(session: AsyncSession, job_id: str, type: str, what: str) -> bool:
    """Whether a job has an event of this type whose data have this text as `what`. Reads the job's events: ask seldom."""
    query = select(EventRow.seq).where(EventRow.job_id == job_id, EventRow.type == type, EventRow.data["what"].as_string() == what)
    return (await session.scalar(query.limit(1))) is not None


async def edits(session: AsyncSession, job_id: str, generation: int) -> Sequence[EventRow]:
    """The edits of a job since this generation began, up to the next one, the oldest first."""
    query = select(EventRow).where(EventRow.job_id == job_id, EventRow.type == "job.edited", EventRow.generation == generation)
    return (await session.scalars(query.order_by(EventRow.seq))).all()


async def newest_seq(session: AsyncSession) -> int:
    return (await session.scalar(select(func.max(EventRow.seq)))) or 0


async def newest_seq_of_job(session: AsyncSession, job_id: str) -> int:
    return (await session.scalar(select(func.max(EventRow.seq)).where(EventRow.job_id == job_id))) or 0


async def count_of_job(session: AsyncSession, job_id: str, limit: int) -> int:
    """The number of a job's events, counted up to `limit`, from an index alone."""
    counted = select(EventRow.seq).where(EventRow.job_id == job_id).limit(limit).subquery()
    return (await session.scalar(select(func.count()).select_from(counted))) or 0


async def states_of_job(session: AsyncSession, job_id: str) -> Sequence[EventRow]:
    """The job's own events that record its state, the oldest first; events from its ranks are left out."""
    told_by_ranks = ("job.evaluated", "job.sample", "job.carried_on")
    query = select(EventRow).where(EventRow.job_id == job_id, EventRow.type.like("job.%"), EventRow.type.not_in(told_by_ranks))
    return [event for event in await session.scalars(query.order_by(EventRow.seq)) if "state" in event.data]
