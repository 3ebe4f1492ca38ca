"""Queries about notifications: channels, rules, deliveries, lasting conditions, and the cursor over events."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.cluster.history.delivery_pace import LONGEST_RETRY_AFTER
from paceline.cluster.states import Intent, JobState
from paceline.db.base import new_id
from paceline.db.dialects import dialect_of
from paceline.db.models.events import EventRow
from paceline.db.models.jobs import WAITING, JobRow
from paceline.db.models.notifications import PENDING, ChannelRow, ConditionRow, DeliveryRow, EventCursorRow, RuleRow

EVENTS_CURSOR = "events"
FACTS_AT_ONCE = 500


# --- channels and rules


async def channels(session: AsyncSession) -> Sequence[ChannelRow]:
    return (await session.scalars(select(ChannelRow).order_by(ChannelRow.name))).all()


async def channel(session: AsyncSession, reference: str) -> ChannelRow | None:
    """The channel of this id or name."""
    query = select(ChannelRow).where(or_(ChannelRow.id == reference, ChannelRow.name == reference)).order_by(ChannelRow.id != reference)
    return (await session.scalars(query.limit(1))).first()


async def channel_locked(session: AsyncSession, channel_id: str) -> ChannelRow | None:
    return await session.get(ChannelRow, channel_id, with_for_update=True, populate_existing=True)


async def delete_channel(session: AsyncSession, row: ChannelRow, now: datetime) -> None:
    """Delete a channel and its rules. What was to be sent to it is not sent any more; its history stays."""
    await channel_locked(session, row.id)  # before its deliveries, as everywhere
    await end_pending(session, row.id, "not sent: the channel was deleted", now)
    await session.execute(delete(RuleRow).where(RuleRow.channel_id == row.id))
    await session.delete(row)


async def rules(session: AsyncSession) -> Sequence[tuple[RuleRow, ChannelRow]]:
    """All rules with their channels, the oldest first."""
    query = select(RuleRow, ChannelRow).join(ChannelRow, ChannelRow.id == RuleRow.channel_id).order_by(RuleRow.id)
    return [(rule, channel) for rule, channel in (await session.execute(query)).all()]


# --- from the history to deliveries


async def cursor(session: AsyncSession) -> int | None:
    return await session.scalar(select(EventCursorRow.seq).where(EventCursorRow.name == EVENTS_CURSOR))


async def cursor_locked(session: AsyncSession) -> EventCursorRow | None:
    return await session.get(EventCursorRow, EVENTS_CURSOR, with_for_update=True, populate_existing=True)


async def begin_cursor(session: AsyncSession, seq: int) -> None:
    """Set the cursor where there is none: two coordinators that start together agree on one."""
    fresh = dialect_of(session).insert(EventCursorRow).values(name=EVENTS_CURSOR, seq=seq)
    await session.execute(fresh.on_conflict_do_nothing())


async def events_between(session: AsyncSession, after: int, until: int, types: Collection[str], limit: int) -> Sequence[EventRow]:
    """Events of these types with `after < seq <= until`, the oldest first."""
    query = select(EventRow).where(EventRow.seq > after, EventRow.seq <= until, EventRow.type.in_(types))
    return (await session.scalars(query.order_by(EventRow.seq).limit(limit))).all()


async def add_once(session: AsyncSession, values: Sequence[dict[str, Any]]) -> int:
    """Store deliveries but for those of a fact that its rule has told. Returns how many are new."""
    if not values:
        return 0
    rows = [{"id": new_id(), "state": "pending", "attempts": 0, **each} for each in values]
    fresh = dialect_of(session).insert(DeliveryRow).values(rows).on_conflict_do_nothing(index_elements=["rule_id", "fact"])
    return len((await session.scalars(fresh.returning(DeliveryRow.id))).all())


async def told_facts(session: AsyncSession, facts: Sequence[str]) -> set[tuple[str | None, str]]:
    """(rule, fact) of these facts that have been told. Asked in parts: a statement has a limited number of parameters."""
    found = set[tuple[str | None, str]]()
    for first in range(0, len(facts), FACTS_AT_ONCE):
        asked = facts[first : first + FACTS_AT_ONCE]
        query = select(DeliveryRow.rule_id, DeliveryRow.fact).where(DeliveryRow.fact.in_(asked), DeliveryRow.rule_id.is_not(None))
        found |= {(rule, fact) for rule, fact in (await session.execute(query)).all()}
    return found


@dataclass(frozen=True)
class QueuedJob:
    """A job that waits, as far as rules ask."""

    id: str
    since: datetime
    project: str
    owner_id: str | None


async def queued_before(session: AsyncSession, moment: datetime, limit: int) -> list[QueuedJob]:
    """Jobs that have waited for slots since before a moment, the newest first: in the queue, or on their way to go on after a fault. The time of
    their state counts, since a job that waits for another size keeps its turn in the queue, and with it its `queued_at`."""
    recovering = and_(JobRow.state == JobState.RECOVERING, JobRow.desired == Intent.RUN, JobRow.pending.is_not(None))
    columns = (JobRow.id, JobRow.state_since, JobRow.project, JobRow.created_by_id)
    query = select(*columns).where(or_(WAITING, recovering), JobRow.state_since <= moment)
    query = query.order_by(JobRow.state_since.desc(), JobRow.id.desc()).limit(limit)
    return [QueuedJob(*row) for row in (await session.execute(query)).all()]


async def conditions(session: AsyncSession) -> set[str]:
    return set(await session.scalars(select(ConditionRow.key)))


async def begin_condition(session: AsyncSession, key: str, now: datetime) -> bool:
    """Record that a condition holds. Returns False where that is known: another coordinator has told it."""
    fresh = dialect_of(session).insert(ConditionRow).values(key=key, since=now).on_conflict_do_nothing()
    return (await session.scalar(fresh.returning(ConditionRow.key))) is not None


async def end_conditions(session: AsyncSession, keys: Collection[str]) -> None:
    await session.execute(delete(ConditionRow).where(ConditionRow.key.in_(keys)))


# --- deliveries


def _due(now: datetime) -> ColumnElement[bool]:
    """The condition that a delivery is due. So is one that would wait for longer than any may: the clock was set back since it was put off."""
    return and_(PENDING, or_(DeliveryRow.due_at <= now, DeliveryRow.due_at > now + LONGEST_RETRY_AFTER))


async def has_due(session: AsyncSession, now: datetime) -> bool:
    return (await session.scalar(select(DeliveryRow.id).where(_due(now)).limit(1))) is not None


async def due_channels(session: AsyncSession, now: datetime) -> Sequence[str]:
    return (await session.scalars(select(DeliveryRow.channel_id).where(_due(now)).distinct())).all()


async def due_of_channel(session: AsyncSession, channel_id: str, now: datetime, limit: int) -> Sequence[DeliveryRow]:
    """The deliveries that are due: those that were tried before first, then the oldest."""
    query = select(DeliveryRow).where(_due(now), DeliveryRow.channel_id == channel_id)
    return (
        await session.scalars(
            query.order_by(DeliveryRow.attempts == 0, DeliveryRow.created_at, DeliveryRow.seq, DeliveryRow.id)
            .limit(limit)
            .with_for_update()
        )
    ).all()


async def postpone(session: AsyncSession, channel_id: str, until: datetime, now: datetime) -> None:
    """Postpone what is due now, or before this moment."""
    early = and_(PENDING, DeliveryRow.due_at < until)
    await session.execute(update(DeliveryRow).where(DeliveryRow.channel_id == channel_id, or_(early, _due(now))).values(due_at=until))


async def end_pending(session: AsyncSession, channel_id: str, answer: str, now: datetime) -> None:
    values = {"state": "failed", "answer": answer, "finished_at": now}
    await session.execute(update(DeliveryRow).where(DeliveryRow.channel_id == channel_id, DeliveryRow.state == "pending").values(**values))


async def delivery(session: AsyncSession, delivery_id: str) -> DeliveryRow | None:
    return await session.get(DeliveryRow, delivery_id)


async def attempt_locked(session: AsyncSession, delivery_id: str, attempt: int) -> DeliveryRow | None:
    """The delivery while its attempt of this number is the newest one and has no answer; else None."""
    query = select(DeliveryRow).where(DeliveryRow.id == delivery_id, DeliveryRow.attempts == attempt, DeliveryRow.state == "pending")
    return (await session.scalars(query.with_for_update())).one_or_none()


async def end_members(session: AsyncSession, digest: DeliveryRow) -> None:
    """Give the lines of a digest its end."""
    values = {name: getattr(digest, name) for name in ("state", "answer", "finished_at", "attempts")}
    await session.execute(update(DeliveryRow).where(DeliveryRow.digest_id == digest.id).values(**values))


async def deliveries_page(
    session: AsyncSession, *, channel_id: str | None, state: str | None, before: str | None, limit: int
) -> Sequence[DeliveryRow]:
    """Deliveries, the newest first."""
    wanted: list[ColumnElement[bool]] = []
    if channel_id is not None:
        wanted.append(DeliveryRow.channel_id == channel_id)
    if state is not None:
        wanted.append(DeliveryRow.state == state)
    if before is not None:
        wanted.append(DeliveryRow.id < before)
    return (await session.scalars(select(DeliveryRow).where(*wanted).order_by(DeliveryRow.id.desc()).limit(limit))).all()


async def last_deliveries(session: AsyncSession) -> dict[str, DeliveryRow]:
    """The newest delivery of each channel that was tried: one look into the index for each channel, however long the history is."""
    own = (DeliveryRow.channel_id == ChannelRow.id, DeliveryRow.attempts > 0, DeliveryRow.digest_id.is_(None))
    newest = select(DeliveryRow.id).where(*own).order_by(DeliveryRow.id.desc()).limit(1).correlate(ChannelRow).scalar_subquery()
    return {
        row.channel_id: row
        for row in await session.scalars(select(DeliveryRow).where(DeliveryRow.id.in_(select(newest).select_from(ChannelRow))))
    }


async def forget_before(session: AsyncSession, moment: datetime) -> None:
    """Delete deliveries that have ended."""
    await session.execute(delete(DeliveryRow).where(DeliveryRow.state != "pending", DeliveryRow.created_at < moment))
