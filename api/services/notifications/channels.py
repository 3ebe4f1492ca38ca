"""Channels of notifications: made, changed and deleted by admins. Their addresses and secrets are sealed in the database, and go in and never come out."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.identity import Caller
from paceline.api.core.vault import Vault
from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.notifications import ChannelCreate, ChannelCreated, ChannelUpdate, NotificationChannel
from paceline.api.services.lifecycle import events
from paceline.api.services.notifications.addresses import (
    AllowedTargets,
    HostNotFoundError,
    TargetRefusedError,
    checked_addresses,
    host_of,
    target_of,
)
from paceline.api.services.notifications.deliveries import describe as describe_delivery
from paceline.api.services.notifications.sealed_channels import opened, seal_channel
from paceline.api.services.notifications.webhooks import SECRET_PREFIX
from paceline.api.settings import Settings
from paceline.cluster.history.delivery_pace import MOST_AT_ONCE
from paceline.credentials import new_secret
from paceline.db.base import new_id
from paceline.db.models.notifications import ChannelRow, DeliveryRow
from paceline.db.repositories import notifications as rows
from paceline.monitoring.words import plural

MOST_CHANNELS = 100


def _target_of(row: ChannelRow, vault: Vault) -> str:
    if not row.url:
        return plural(len(row.recipients), "recipient") if row.kind == "email" else "address lost"
    url = opened(row, vault).url
    return host_of(target_of(url)) if url else "sealed with a lost key"


def describe(row: ChannelRow, caller: Caller, vault: Vault, last: DeliveryRow | None = None) -> NotificationChannel:
    return NotificationChannel(
        id=row.id,
        name=row.name,
        kind=row.kind,
        target=_target_of(row, vault),
        recipients=row.recipients if caller.may("admin") else [],
        enabled=row.enabled,
        for_members=row.for_members,
        created_by=row.created_by,
        created_at=row.created_at,
        last=None if last is None else describe_delivery(last),
    )


async def all_channels(session: AsyncSession, caller: Caller, vault: Vault) -> list[NotificationChannel]:
    last = await rows.last_deliveries(session)
    return [describe(row, caller, vault, last.get(row.id)) for row in await rows.channels(session)]


async def find(session: AsyncSession, reference: str) -> ChannelRow:
    row = await rows.channel(session, reference)
    if row is None:
        raise not_found("channel", reference)
    return row


async def check_target(wanted: ChannelCreate, settings: Settings) -> None:
    """Refuse a channel that could never be sent to, before any transaction: names are resolved. A name that has no address at the moment is
    let through."""
    if wanted.url is None:
        if not settings.smtp_host:
            raise ProblemError(
                "no_mail_server",
                "e-mail needs a mail server: set PACELINE_SMTP_HOST, and what else the settings say, where the coordinator starts",
            )
        return
    try:
        await checked_addresses(target_of(wanted.url), AllowedTargets.parse(settings.notify_allow))
    except TargetRefusedError as error:
        raise ProblemError("target_refused", f"url: {error}") from None
    except HostNotFoundError:
        return


async def create(
    session: AsyncSession, caller: Caller, wanted: ChannelCreate, base_url: str, vault: Vault, now: datetime
) -> ChannelCreated:
    """Make a channel. A webhook gets a secret, which this answer alone has."""
    if await rows.channel(session, wanted.name) is not None:
        raise _taken(wanted.name)
    if len(await rows.channels(session)) >= MOST_CHANNELS:
        raise ProblemError("invalid_request", f"there are {MOST_CHANNELS} channels, which is the limit; delete one first")
    secret = new_secret(SECRET_PREFIX) if wanted.kind == "webhook" else None
    row = ChannelRow(
        id=new_id(),
        name=wanted.name,
        kind=wanted.kind,
        url=wanted.url,
        secret=secret,
        recipients=list(wanted.recipients),
        enabled=True,
        for_members=wanted.for_members,
        base_url=base_url.rstrip("/"),
        created_by=caller.name,
        created_at=now,
        tokens=float(MOST_AT_ONCE),
        tokens_at=now,
    )
    await seal_channel(session, vault, row)
    session.add(row)
    await session.flush()
    shown = describe(row, caller, vault)
    await _record(session, caller, row, "channel_created", f"made the {row.kind} channel {row.name} to {shown.target}", now)
    return ChannelCreated(**shown.model_dump(), secret=secret)


async def update(
    session: AsyncSession, caller: Caller, reference: str, change: ChannelUpdate, vault: Vault, now: datetime
) -> NotificationChannel:
    row = await find(session, reference)
    if change.name is not None and change.name != row.name:
        if await rows.channel(session, change.name) is not None:
            raise _taken(change.name)
        row.name = change.name
    row.enabled = row.enabled if change.enabled is None else change.enabled
    row.for_members = row.for_members if change.for_members is None else change.for_members
    if not row.enabled:
        await rows.end_pending(session, row.id, "not sent: the channel is switched off", now)
    await session.flush()
    state = f"{'on' if row.enabled else 'off'}, {'for members too' if row.for_members else 'for admins alone'}"
    await _record(session, caller, row, "channel_changed", f"changed the channel {row.name}: {state}", now)
    return describe(row, caller, vault, (await rows.last_deliveries(session)).get(row.id))


async def delete(session: AsyncSession, caller: Caller, reference: str, now: datetime) -> None:
    """Delete a channel with its rules."""
    row = await find(session, reference)
    await _record(session, caller, row, "channel_deleted", f"deleted the channel {row.name} and its rules", now)
    await rows.delete_channel(session, row, now)


async def _record(session: AsyncSession, caller: Caller, row: ChannelRow, what: str, message: str, now: datetime) -> None:
    data = {"id": row.id, "name": row.name}
    await events.record(
        session, type=f"notification.{what}", actor=caller.actor, cause="request", message=f"{caller.name} {message}", data=data, time=now
    )


def _taken(name: str) -> ProblemError:
    return ProblemError("already_exists", f"there is a channel {name!r}; choose another name")
