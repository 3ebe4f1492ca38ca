"""Channels that take notifications, rules that ask for them, and deliveries."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from paceline.api.schemas.common import Schema, Timestamp
from paceline.cluster.history.notifications import OF_NO_JOB, NotificationEvent
from paceline.training.schema.parts import Real, Text, Whole, inconsistent
from paceline.training.schema.spelling import SpellingRule

ChannelKind = Literal["webhook", "slack", "email"]
DeliveryState = Literal["pending", "delivered", "failed"]
DEFAULT_MINUTES, DEFAULT_GOODPUT = 30, 0.8
MOST_RECIPIENTS = 20

ChannelName = Annotated[
    str,
    SpellingRule(
        r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}$", "1 to 63 letters, digits, spaces, '.', '_' and '-'; first a letter or digit", "team-vision"
    ),
]
EmailAddress = Annotated[
    str,
    SpellingRule(
        r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@(?=.{1,253}$)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$",
        "one e-mail address of ASCII characters, without a name beside it",
        "ops@example.org",
    ),
]


class ChannelCreate(Schema):
    """A channel: `url` for a webhook or Slack, `recipients` for e-mail."""

    name: ChannelName
    kind: ChannelKind
    url: Text | None = Field(None, max_length=2000, description="where requests go; it is never shown again, since it may hold a secret")
    recipients: list[EmailAddress] = Field([], max_length=MOST_RECIPIENTS)
    for_members: bool = Field(True, description="members may make rules that send to it")

    @model_validator(mode="after")
    def _address_fits_kind(self) -> Self:
        if self.kind == "email" and (self.url is not None or not self.recipients):
            raise inconsistent("a channel of the kind email has recipients and no url", way_out="recipients: [ops@example.org]")
        if self.kind != "email" and (self.url is None or self.recipients):
            raise inconsistent(
                f"a channel of the kind {self.kind} has a url and no recipients", way_out="url: https://hooks.example.org/paceline"
            )
        return self


class ChannelUpdate(Schema):
    """A change of a channel: what is left out stays."""

    name: ChannelName | None = None
    enabled: bool | None = Field(
        None, description="false: nothing is sent until it is true again, and what happens meanwhile is not told later"
    )
    for_members: bool | None = None


class NotificationChannel(Schema):
    id: str
    name: str
    kind: ChannelKind
    target: str = Field(description="host of the url, or how many recipients: the url itself is never shown")
    recipients: list[str] = Field([], description="of an e-mail channel, for admins; empty for others")
    enabled: bool
    for_members: bool
    created_by: str
    created_at: Timestamp
    last: NotificationDelivery | None = Field(None, description="the newest message that was sent or tried")


class ChannelCreated(NotificationChannel):
    secret: str | None = Field(None, description="of a webhook: signs its requests; shown once")


class RuleCreate(Schema):
    """A rule: which facts a channel is told."""

    channel: Text = Field(min_length=1, max_length=64, description="name or id")
    events: list[NotificationEvent] = Field(min_length=1, max_length=len(NotificationEvent))
    project: Text | None = Field(None, min_length=1, max_length=64, description="of jobs of this project alone; null: of all")
    mine: bool = Field(False, description="of its maker's own jobs alone; a member's rules must be")
    queued_minutes: Whole | None = Field(None, ge=1, le=43_200, description=f"for queued_long; null: {DEFAULT_MINUTES}")
    goodput_below: Real | None = Field(None, gt=0.0, lt=1.0, description=f"for goodput_low; null: {DEFAULT_GOODPUT}")

    @model_validator(mode="after")
    def _thresholds_have_their_events(self) -> Self:
        if len(set(self.events)) != len(self.events):
            raise inconsistent("events names one twice", way_out="name each once")
        for name, event in (("queued_minutes", NotificationEvent.QUEUED_LONG), ("goodput_below", NotificationEvent.GOODPUT_LOW)):
            if getattr(self, name) is not None and event not in self.events:
                raise inconsistent(f"{name} is for the event {event.value}, which is not among the events", way_out=f"add {event.value}")
        if OF_NO_JOB & set(self.events) and (self.mine or self.project is not None):
            raise inconsistent(
                "disk_low is of the coordinator, not of a job", way_out="make a rule of its own for it, without project and mine"
            )
        return self


class NotificationRule(Schema):
    id: str
    channel_id: str
    channel_name: str
    events: list[NotificationEvent]
    project: str | None
    owner_id: str | None = Field(description="the user whose jobs alone it is about; null: everybody's")
    queued_minutes: int | None
    goodput_below: float | None
    created_by: str
    created_by_id: str | None
    created_at: Timestamp
    text: str = Field(description="the rule in words")


class NotificationDelivery(Schema):
    id: str = Field(description="also the header Idempotency-Key of its requests")
    channel_id: str
    channel_name: str
    rule_id: str | None = Field(description="null: a test, a digest, or sent again by hand")
    event: str = Field(description="one of a rule's events, test or digest")
    job_id: str | None
    title: str
    state: DeliveryState
    attempts: int
    answer: str | None = Field(description="to the newest attempt; null: there was none")
    next_attempt_at: Timestamp | None = Field(description="null: none follows")
    created_at: Timestamp
    finished_at: Timestamp | None
    digest_id: str | None = Field(description="the delivery that carried it as one line of a digest; null: it went alone")


class SendAgain(Schema):
    """A request without a body: the message is sent as it was."""


NotificationChannel.model_rebuild()
ChannelCreated.model_rebuild()
