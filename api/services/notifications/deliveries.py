"""Deliveries: claimed in one transaction, sent outside of any, and their answers stored in another.

A coordinator that dies between sending and storing leaves a claim, which lapses: the message is sent once more, with the same id, by
which its receiver can tell. A claim is of one attempt, so an answer that comes too late changes nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import Services, nudge_after_commit
from paceline.api.core.identity import Caller
from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.notifications import NotificationDelivery
from paceline.api.services.lifecycle import delivery_lifecycle, events
from paceline.api.services.notifications import mail, messages, outcomes, webhooks
from paceline.api.services.notifications.addresses import AllowedTargets
from paceline.api.services.notifications.messages import Notification
from paceline.api.services.notifications.outcomes import AttemptOutcome
from paceline.api.services.notifications.sealed_channels import opened
from paceline.cluster.history.delivery_pace import LONGEST_REST, LONGEST_RETRY_AFTER, MOST_AT_ONCE, plan_messages, retry_delay
from paceline.db.base import new_id
from paceline.db.models.notifications import ChannelRow, DeliveryRow
from paceline.db.repositories import notifications as rows

#: How long an attempt may be without an answer before it is made again: longer than any attempt of one claim takes.
CLAIM = timedelta(seconds=120)
#: Messages of one channel in one claim. They are sent one after the other, each for 20 s at most.
MOST_IN_CLAIM = 3
#: Waiting messages that one claim reads: a digest stands for so many at most.
MOST_WAITING = 1000


@dataclass(frozen=True)
class DeliveryAttempt:
    """One attempt: what is sent where. Read within a transaction, used outside of it."""

    delivery_id: str
    attempt: int
    channel: ChannelRow
    message: Notification


def describe(row: DeliveryRow) -> NotificationDelivery:
    own = {name: getattr(row, name) for name in NotificationDelivery.model_fields if name != "next_attempt_at"}
    return NotificationDelivery.model_validate(
        {**own, "next_attempt_at": row.due_at if row.state == "pending" and row.digest_id is None else None}
    )


async def claim(session: AsyncSession, channel_id: str, public_url: str, now: datetime) -> list[DeliveryAttempt]:
    """Take what is due for a channel: retries and digests first, then as many new messages as its token bucket has room for."""
    channel = await rows.channel_locked(session, channel_id)
    if channel is None or not channel.enabled:
        await rows.end_pending(session, channel_id, "not sent: the channel is switched off or deleted", now)
        return []
    if channel.quiet_until is not None and now < channel.quiet_until <= now + LONGEST_RETRY_AFTER:  # beyond: the clock was set back
        await rows.postpone(session, channel_id, channel.quiet_until, now)
        return []
    due = await rows.due_of_channel(session, channel_id, now, MOST_WAITING)
    chosen = [row for row in due if not _needs_token(row)][:MOST_IN_CLAIM]
    waiting, room = [row for row in due if _needs_token(row)], MOST_IN_CLAIM - len(chosen)
    chosen += await _new_messages(session, channel, waiting, room, base_of(channel, public_url), now)
    for row in chosen:
        row.attempts += 1
        row.due_at = now + CLAIM
    await session.flush()
    return [DeliveryAttempt(row.id, row.attempts, channel, messages.parsed(row.message)) for row in chosen]


def _needs_token(row: DeliveryRow) -> bool:
    """Whether a message is new. A digest is not, though it was never tried: it had its token when it was made, and stands for others."""
    return row.attempts == 0 and row.event != messages.DIGEST


def base_of(channel: ChannelRow, public_url: str) -> str:
    """Where links lead: the coordinator's public URL, else the address at which the channel was made."""
    return (public_url or channel.base_url).rstrip("/")


async def _new_messages(
    session: AsyncSession, channel: ChannelRow, waiting: Sequence[DeliveryRow], room: int, base: str, now: datetime
) -> list[DeliveryRow]:
    channel.tokens_at = min(channel.tokens_at, now)  # later than now: the clock was set back, and none would grow until then
    plan = plan_messages(len(waiting), channel.tokens, channel.tokens_at, now)
    if plan.wait is not None:
        for row in waiting:
            row.due_at = now + plan.wait
        return []
    alone = list(waiting[: min(plan.alone, room)])
    spent = len(alone)
    if plan.together and len(alone) == plan.alone and room > spent:
        alone.append(await _digest(session, channel, waiting[plan.alone :], base, now))
        spent += 1
    channel.tokens = plan.tokens + plan.alone + (1 if plan.together else 0) - spent
    channel.tokens_at = now
    return alone


async def _digest(session: AsyncSession, channel: ChannelRow, members: Sequence[DeliveryRow], base: str, now: datetime) -> DeliveryRow:
    """Make one delivery for many."""
    message = messages.digest_of([row.title for row in members], f"{base}/notifications" if base else "", now)
    row = new_delivery(channel, message, f"digest:{new_id()}", now)
    session.add(row)
    await session.flush()
    for member in members:
        member.digest_id = row.id
    return row


def new_delivery(channel: ChannelRow, message: Notification, fact: str, now: datetime, job_id: str | None = None) -> DeliveryRow:
    """A delivery that no rule asks for."""
    return DeliveryRow(
        id=new_id(),
        channel_id=channel.id,
        channel_name=channel.name,
        rule_id=None,
        fact=fact,
        event=message.event,
        job_id=job_id,
        title=message.title,
        message=messages.stored(message),
        state="pending",
        attempts=0,
        due_at=now,
        created_at=now,
    )


async def send(services: Services, sending: DeliveryAttempt) -> AttemptOutcome:
    """Make one attempt, in no transaction."""
    channel, message, now = sending.channel, sending.message, services.now()
    if channel.kind == "email":
        return await mail.send(services.settings, channel.recipients, message, sending.delivery_id, now)
    found = opened(channel, services.vault)
    if found.url is None:
        return outcomes.failed(found.failure or "the channel has no address", again=bool(found.failure))
    slack = channel.kind == "slack"
    document = messages.slack_document(message) if slack else messages.webhook_document(message, sending.delivery_id, channel.name)
    return await webhooks.post(
        found.url,
        document,
        AllowedTargets.parse(services.settings.notify_allow),
        delivery_id=sending.delivery_id,
        event=message.event,
        secret=found.secret,
        now=now,
    )


async def store(
    session: AsyncSession, sending: DeliveryAttempt, outcome: AttemptOutcome, now: datetime, *, only_once: bool = False
) -> DeliveryRow | None:
    """Store how an attempt ended, unless it is not the newest one any more. `only_once`: no other follows."""
    channel = await rows.channel_locked(session, sending.channel.id)  # before its delivery, as everywhere
    row = await rows.attempt_locked(session, sending.delivery_id, sending.attempt)
    if row is None:
        return None
    row.answer = outcome.answer
    delay = retry_delay(row.attempts, outcome.retry_after, random.random()) if outcome.again and not only_once else None
    if outcome.delivered or delay is None:
        delivery_lifecycle.end(row, now, delivered=outcome.delivered)
        await session.flush()
        await rows.end_members(session, row)
        return row
    row.due_at = now + delay
    if channel is not None:
        channel.quiet_until = now + (delay if outcome.retry_after else min(delay, LONGEST_REST))
    return row


async def release(session: AsyncSession, sendings: Sequence[DeliveryAttempt], now: datetime) -> None:
    """Give back attempts that were claimed and not made, with the tokens of new messages."""
    for sending in sendings:
        channel = await rows.channel_locked(session, sending.channel.id)  # before its delivery, as everywhere
        row = await rows.attempt_locked(session, sending.delivery_id, sending.attempt)
        if row is None:
            continue
        row.attempts -= 1
        row.due_at = now
        if channel is not None and _needs_token(row):
            channel.tokens = min(float(MOST_AT_ONCE), channel.tokens + 1)


async def test(services: Services, caller: Caller, reference: str) -> NotificationDelivery:
    """Send a test at once, once, whatever the channel's pace. Returns its delivery with the answer."""
    now = services.now()
    async with services.write(request=True) as session:
        channel = await rows.channel(session, reference)
        if channel is None:
            raise not_found("channel", reference)
        message = messages.test_message(channel.name, caller.name, base_of(channel, services.settings.public_url), now)
        row = new_delivery(channel, message, f"test:{new_id()}", now)
        row.attempts, row.due_at = 1, now + CLAIM
        session.add(row)
        await _record(session, caller, channel, "channel_tested", f"tested the channel {channel.name}", now)
    sending = DeliveryAttempt(row.id, 1, channel, message)
    outcome = await send(services, sending)
    async with services.write(request=True) as session:
        ended = await store(session, sending, outcome, services.now(), only_once=True)
    if ended is None:
        raise ProblemError("not_found", f"the channel {channel.name} was deleted or switched off meanwhile: {outcome.answer}")
    return describe(ended)


async def send_again(session: AsyncSession, caller: Caller, delivery_id: str, now: datetime) -> NotificationDelivery:
    """Send a message that has ended once more, as a delivery of its own. Raises forbidden for all but admins and the rule's maker."""
    row = await rows.delivery(session, delivery_id)
    if row is None:
        raise not_found("delivery", delivery_id)
    if not caller.may("admin"):
        makers = {rule.id: rule.created_by_id for rule, _ in await rows.rules(session)}
        if row.rule_id is None or makers.get(row.rule_id) != caller.user_id:
            raise ProblemError("forbidden", "only admins may send it again, and who made its rule")
    if row.state == "pending":
        raise ProblemError("still_pending", "it is still to be sent by itself; wait for its end")
    channel = await rows.channel(session, row.channel_id)
    if channel is None or not channel.enabled:
        raise ProblemError("not_found", f"the channel {row.channel_name} is deleted or switched off; switch it on, or make it anew")
    copy = new_delivery(channel, messages.parsed(row.message), f"again:{new_id()}", now, row.job_id)
    session.add(copy)
    await session.flush()
    nudge_after_commit(session, bus.DELIVERIES)
    await _record(session, caller, channel, "sent_again", f"sent {row.title!r} to the channel {channel.name} again", now)
    return describe(copy)


async def _record(session: AsyncSession, caller: Caller, channel: ChannelRow, what: str, message: str, now: datetime) -> None:
    data = {"id": channel.id, "name": channel.name}
    await events.record(
        session, type=f"notification.{what}", actor=caller.actor, cause="request", message=f"{caller.name} {message}", data=data, time=now
    )
