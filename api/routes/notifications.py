"""Notifications: channels, rules, tests, and the history of deliveries."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from paceline.api.core.paging import Cursor, Fields, Limit, decode, only, page_of
from paceline.api.deps import Admin, Member, ReadSession, ServicesDep, Viewer, WriteSession
from paceline.api.schemas.common import Page
from paceline.api.schemas.notifications import (
    ChannelCreate,
    ChannelCreated,
    ChannelUpdate,
    DeliveryState,
    NotificationChannel,
    NotificationDelivery,
    NotificationRule,
    RuleCreate,
    SendAgain,
)
from paceline.api.services.jobs.idempotency import Once
from paceline.api.services.notifications import channels, deliveries, rules
from paceline.db.repositories import notifications as rows

router = APIRouter(prefix="/notifications", tags=["notifications"])
OfChannel = Annotated[str | None, Query(description="those of the channel of this name or id alone", max_length=64)]
InState = Annotated[DeliveryState | None, Query(description="those in this state alone")]


@router.get("/channels")
async def list_channels(session: ReadSession, caller: Viewer, services: ServicesDep) -> list[NotificationChannel]:
    """All channels, in order of their names. Their addresses and secrets are never shown."""
    return await channels.all_channels(session, caller, services.vault)


@router.post("/channels", status_code=201)
async def create_channel(body: ChannelCreate, request: Request, caller: Admin, services: ServicesDep, once: Once) -> ChannelCreated:
    """Make a channel. The secret of a webhook is in this answer alone."""
    await channels.check_target(body, services.settings)
    base = services.settings.public_url or str(request.base_url)
    async with services.write(request=True) as session:
        return await once.run(
            session, body, ChannelCreated, lambda: channels.create(session, caller, body, base, services.vault, services.now()), secret=True
        )


@router.patch("/channels/{channel_id}")
async def update_channel(
    channel_id: str, body: ChannelUpdate, session: WriteSession, caller: Admin, services: ServicesDep
) -> NotificationChannel:
    return await channels.update(session, caller, channel_id, body, services.vault, services.now())


@router.delete("/channels/{channel_id}", status_code=204)
async def delete_channel(channel_id: str, session: WriteSession, caller: Admin, services: ServicesDep) -> None:
    """Delete a channel with its rules. Its deliveries stay in the history."""
    await channels.delete(session, caller, channel_id, services.now())


@router.post("/channels/{channel_id}/test")
async def test_channel(channel_id: str, caller: Admin, services: ServicesDep) -> NotificationDelivery:
    """Send a test at once, and wait for its answer: up to 10 s, for e-mail 20 s."""
    return await deliveries.test(services, caller, channel_id)


@router.get("/rules")
async def list_rules(session: ReadSession) -> list[NotificationRule]:
    """All rules, the oldest first."""
    return await rules.all_rules(session)


@router.post("/rules", status_code=201)
async def create_rule(body: RuleCreate, session: WriteSession, caller: Member, services: ServicesDep, once: Once) -> NotificationRule:
    """Make a rule about what happens from now on. Members make rules about their own jobs."""
    return await once.run(session, body, NotificationRule, lambda: rules.create(session, caller, body, services.now()))


@router.put("/rules/{rule_id}")
async def replace_rule(rule_id: str, body: RuleCreate, session: WriteSession, caller: Member, services: ServicesDep) -> NotificationRule:
    """Change a rule for what happens from now on, by its maker or an admin."""
    return await rules.replace(session, caller, rule_id, body, services.now())


@router.delete("/rules/{rule_id}", status_code=204)
async def delete_rule(rule_id: str, session: WriteSession, caller: Member, services: ServicesDep) -> None:
    """Delete a rule, by its maker or an admin."""
    await rules.delete(session, caller, rule_id, services.now())


@router.get("/deliveries", response_model=Page[NotificationDelivery])
async def list_deliveries(
    session: ReadSession,
    channel: OfChannel = None,
    state: InState = None,
    cursor: Cursor = None,
    limit: Limit = 50,
    fields: Fields = None,
) -> Page[NotificationDelivery] | JSONResponse:
    """List deliveries of the last 90 days with their answers, the newest first."""
    before = decode(cursor, str)
    known = await rows.channel(session, channel) if channel is not None else None
    wanted = known.id if known is not None else channel
    found = await rows.deliveries_page(session, channel_id=wanted, state=state, before=str(before[0]) if before else None, limit=limit + 1)
    return only(page_of(found, limit, deliveries.describe, lambda row: (row.id,)), NotificationDelivery, fields)


@router.post("/deliveries/{delivery_id}/send-again", status_code=201)
async def send_delivery_again(
    delivery_id: str, session: WriteSession, caller: Member, services: ServicesDep, once: Once
) -> NotificationDelivery:
    """Send a message that has ended once more, as a delivery of its own: by admins and the maker of its rule."""
    return await once.run(
        session, SendAgain(), NotificationDelivery, lambda: deliveries.send_again(session, caller, delivery_id, services.now())
    )
