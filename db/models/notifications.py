"""Notifications: channels that take them, rules that ask for them, and each delivery with its answer."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, ForeignKey, Index, UniqueConstraint, and_
from sqlalchemy.orm import Mapped, mapped_column

from paceline.db.base import BigInt, ControlBase, JsonDocument, UtcDateTime, constants, new_id, partial_index


class ChannelRow(ControlBase):
    """Where notifications go. `url` and `secret` are sealed (`api.core.vault`); no answer of the API has them."""

    __tablename__ = "notification_channels"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(unique=True)
    kind: Mapped[str]  # webhook, slack or email
    url: Mapped[str | None]
    secret: Mapped[str | None]  # of a webhook: signs each request
    recipients: Mapped[list[str]] = mapped_column(JsonDocument, default=list)
    enabled: Mapped[bool] = mapped_column(default=True)
    for_members: Mapped[bool] = mapped_column(default=True)  # members may make rules that send to it
    base_url: Mapped[str]  # the address of the dashboard when it was made: for links where no public URL is set
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    #: The token bucket of `cluster/history/delivery_pace.py`: what was left at a time.
    tokens: Mapped[float]
    tokens_at: Mapped[datetime] = mapped_column(UtcDateTime)
    quiet_until: Mapped[datetime | None] = mapped_column(UtcDateTime)  # it failed just now: nothing is sent before


def sealed_place(channel: ChannelRow, field: str) -> tuple[str, str, str]:
    """The place that a field of a channel is sealed for."""
    return ("channel", channel.id, field)


class RuleRow(ControlBase):
    """A rule: which facts are sent to a channel."""

    __tablename__ = "notification_rules"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    channel_id: Mapped[str] = mapped_column(ForeignKey("notification_channels.id"), index=True)
    events: Mapped[list[str]] = mapped_column(JsonDocument)
    project: Mapped[str | None]  # None: of every project
    owner_id: Mapped[str | None]  # the user whose jobs alone it is about; None: of everybody
    queued_minutes: Mapped[int | None]
    goodput_below: Mapped[float | None]
    from_seq: Mapped[int] = mapped_column(BigInt)  # the newest event when it was made: what was before is not told
    created_by: Mapped[str]
    created_by_id: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class DeliveryRow(ControlBase):
    """One message to one channel. It outlives its rule and its channel, whose name it keeps."""

    __tablename__ = "notification_deliveries"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    channel_id: Mapped[str]
    channel_name: Mapped[str]
    rule_id: Mapped[str | None]  # None: a test, a digest, or sent again by hand
    fact: Mapped[str]
    seq: Mapped[int] = mapped_column(BigInt, default=0)  # of the event that records the fact: what happened first is sent first
    event: Mapped[str]
    job_id: Mapped[str | None]
    title: Mapped[str]
    message: Mapped[dict[str, Any]] = mapped_column(JsonDocument)  # services.notifications.messages.Message
    state: Mapped[str] = mapped_column(default="pending")  # pending, delivered or failed
    attempts: Mapped[int] = mapped_column(default=0)
    due_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    answer: Mapped[str | None]  # to the newest attempt, in words
    digest_id: Mapped[str | None]  # the delivery that carries this one as a line of a digest

    # Nothing is told twice by one rule, whichever coordinator looks, and however often.
    __table_args__ = (UniqueConstraint("rule_id", "fact"), Index(None, "channel_id", "id"), Index(None, "digest_id"), Index(None, "fact"))


class ConditionRow(ControlBase):
    """Something that was told and lasts: it is told again only after it was over."""

    __tablename__ = "notification_conditions"

    key: Mapped[str] = mapped_column(primary_key=True)
    since: Mapped[datetime] = mapped_column(UtcDateTime)


class EventCursorRow(ControlBase):
    """How far the history of events was turned into notifications."""

    __tablename__ = "notification_cursors"

    name: Mapped[str] = mapped_column(primary_key=True)
    seq: Mapped[int] = mapped_column(BigInt)


#: Deliveries that are still to be sent by themselves.
PENDING: ColumnElement[bool] = and_(DeliveryRow.state.in_(constants("pending")), DeliveryRow.digest_id.is_(None))
partial_index("ix_notification_deliveries_pending", PENDING, DeliveryRow.due_at, DeliveryRow.id)
