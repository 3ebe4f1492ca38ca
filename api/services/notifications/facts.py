"""Turns the history of events into deliveries, exactly once: the cursor moves in the transaction that stores them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import Services, nudge_after_commit
from paceline.api.core.troubles import Subject
from paceline.api.services.lifecycle.isolation import PhaseTurns
from paceline.api.services.notifications import job_messages, messages
from paceline.api.services.notifications.deliveries import base_of
from paceline.api.services.notifications.messages import Notification
from paceline.api.services.notifications.rules import view_of
from paceline.cluster.history.notifications import TYPES, Fact, RecordedEvent, RuleView, fact_of, wants
from paceline.db.models.events import EventRow
from paceline.db.models.jobs import JobRow
from paceline.db.models.notifications import ChannelRow
from paceline.db.repositories import events as event_rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import notifications as rows

#: Events of one transaction.
EVENTS_AT_ONCE = 200
#: Deliveries of one statement, which has a limited number of parameters.
ROWS_AT_ONCE = 200


@dataclass(frozen=True)
class ActiveRule:
    """A rule whose channel is on."""

    rule: RuleView
    channel: ChannelRow


async def active_rules(session: AsyncSession) -> list[ActiveRule]:
    return [ActiveRule(view_of(rule), channel) for rule, channel in await rows.rules(session) if channel.enabled]


async def read_events(services: Services, now: datetime) -> bool:
    """Take one transaction's worth of events. Returns whether there are more. An event that cannot be read holds up no other: it is passed
    over, and its job is told of as held up."""
    async with services.control.read() as session:
        seq, newest = await rows.cursor(session), await event_rows.newest_seq(session)
    if seq is not None and newest <= seq:
        return False
    async with services.write() as session:
        if seq is None:  # what was before the first start is not told
            await rows.begin_cursor(session, newest)
            return False
        cursor = await rows.cursor_locked(session)
        assert cursor is not None, "cursors are never deleted"
        active = await active_rules(session)
        found = await rows.events_between(session, cursor.seq, newest, TYPES, EVENTS_AT_ONCE) if active else []
        is_last = len(found) < EVENTS_AT_ONCE
        failed = await _tell(session, active, found, services.settings.public_url, now)
        cursor.seq = max(cursor.seq, newest if is_last else found[-1].seq)
    turns = PhaseTurns(services, "send notifications of its events", now, "that event is passed over", passes_over=True)
    await turns.forget_ended_jobs()
    for event, error in failed:
        await turns.look(Subject("job", event.job_id or "", event.seq), partial(_raise, error))
    return not is_last


def _raise(error: Exception) -> None:
    raise error


async def _tell(
    session: AsyncSession, active: Sequence[ActiveRule], found: Sequence[EventRow], public_url: str, now: datetime
) -> list[tuple[EventRow, Exception]]:
    """Store the deliveries of these events. Returns the events that cannot be read."""
    jobs = await job_rows.by_id(session, {event.job_id for event in found if event.job_id is not None})
    told, failed = list[dict[str, Any]](), list[tuple[EventRow, Exception]]()
    for event in found:
        try:
            told += _deliveries_of_event(active, event, jobs, public_url, now)
        except Exception as error:  # noqa: BLE001 - told once this transaction is over
            failed.append((event, error))
    await store(session, told)
    return failed


def _deliveries_of_event(
    active: Sequence[ActiveRule], event: EventRow, jobs: Mapping[str, JobRow], public_url: str, now: datetime
) -> list[dict[str, Any]]:
    fact = fact_of(_recorded(event))
    job = None if fact is None else jobs.get(fact.job_id or "")
    return [] if fact is None or job is None else deliveries_of(active, fact, job, _of_event(fact, event, job), public_url, now)


def _recorded(event: EventRow) -> RecordedEvent:
    before, after = event.data.get("from"), event.data.get("to")
    return RecordedEvent(
        seq=event.seq,
        type=event.type,
        job_id=event.job_id,
        generation=event.generation,
        before=before if isinstance(before, str) else None,
        after=after if isinstance(after, str) else None,
    )


def _of_event(fact: Fact, event: EventRow, job: JobRow) -> Callable[[str], Notification]:
    what = event.cause if event.type == "job.state" else event.message
    return lambda base: job_messages.of_job(fact.event, job, what, base, event.time)


def deliveries_of(
    active: Sequence[ActiveRule], fact: Fact, job: JobRow | None, message_at: Callable[[str], Notification], public_url: str, now: datetime
) -> list[dict[str, Any]]:
    """The deliveries of a fact, one for each rule that asks for it. `message_at` writes the message for an address of the dashboard."""
    project, owner = (job.project, job.created_by_id) if job is not None else (None, None)
    return [
        _values(each, fact, message_at(base_of(each.channel, public_url)), now)
        for each in active
        if wants(each.rule, fact, project=project, owner_id=owner)
    ]


def _values(active: ActiveRule, fact: Fact, message: Notification, now: datetime) -> dict[str, Any]:
    return {
        "channel_id": active.channel.id,
        "channel_name": active.channel.name,
        "rule_id": active.rule.id,
        "fact": fact.key,
        "seq": fact.seq or 0,
        "event": message.event,
        "job_id": fact.job_id,
        "title": message.title,
        "message": messages.stored(message),
        "due_at": now,
        "created_at": now,
    }


async def store(session: AsyncSession, told: Sequence[dict[str, Any]]) -> None:
    """Store deliveries but for those that were told before, and wake their loop."""
    new = sum([await rows.add_once(session, told[first : first + ROWS_AT_ONCE]) for first in range(0, len(told), ROWS_AT_ONCE)])
    if new:
        nudge_after_commit(session, bus.DELIVERIES)
