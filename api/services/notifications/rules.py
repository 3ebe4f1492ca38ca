"""Rules of notifications. Admins make any and delete all; members make rules about their own jobs, and delete theirs."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.identity import Caller
from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.notifications import DEFAULT_GOODPUT, DEFAULT_MINUTES, NotificationRule, RuleCreate
from paceline.api.services.lifecycle import events
from paceline.api.services.notifications import channels
from paceline.cluster.history.notifications import NotificationEvent, RuleView
from paceline.db.models.notifications import ChannelRow, RuleRow
from paceline.db.repositories import events as event_rows
from paceline.db.repositories import notifications as rows

MOST_RULES = 500
_WORDS = {
    NotificationEvent.FAILED: "failed",
    NotificationEvent.FINISHED: "finished",
    NotificationEvent.CANCELLED: "cancelled",
    NotificationEvent.DEGRADED: "degraded by a fault",
    NotificationEvent.NAN: "NaN loss",
    NotificationEvent.DISK_LOW: "disk low",
}


def view_of(row: RuleRow) -> RuleView:
    return RuleView(
        id=row.id,
        events=frozenset(row.events),
        project=row.project,
        owner_id=row.owner_id,
        queued_minutes=row.queued_minutes,
        goodput_below=row.goodput_below,
        from_seq=row.from_seq,
    )


def describe(row: RuleRow, channel: ChannelRow) -> NotificationRule:
    own = {name: getattr(row, name) for name in NotificationRule.model_fields if name not in ("channel_name", "text")}
    return NotificationRule.model_validate({**own, "channel_name": channel.name, "text": in_words(row)})


def in_words(row: RuleRow) -> str:
    """The rule as a sentence: "failed, finished: jobs of vera in the project vision"."""
    known = [NotificationEvent(each) for each in row.events]
    said = [_event_words(each, row) for each in known]
    about = f"{f'own jobs of {row.created_by}' if row.owner_id else 'all jobs'}{f' in the project {row.project}' if row.project else ''}"
    return f"{', '.join(said)}" if known == [NotificationEvent.DISK_LOW] else f"{', '.join(said)}: {about}"


def _event_words(event: NotificationEvent, row: RuleRow) -> str:
    if event is NotificationEvent.QUEUED_LONG:
        return f"queued longer than {row.queued_minutes} min"
    if event is NotificationEvent.GOODPUT_LOW:
        return f"goodput below {row.goodput_below:.0%}"
    return _WORDS[event]


async def all_rules(session: AsyncSession) -> list[NotificationRule]:
    return [describe(rule, channel) for rule, channel in await rows.rules(session)]


async def create(session: AsyncSession, caller: Caller, wanted: RuleCreate, now: datetime) -> NotificationRule:
    """Make a rule about what happens from now on. Raises forbidden for what only admins may."""
    channel = await _channel_of(session, caller, wanted)
    if len(await rows.rules(session)) >= MOST_RULES:
        raise ProblemError("invalid_request", f"there are {MOST_RULES} rules, which is the limit; delete one first")
    row = RuleRow(owner_id=caller.user_id if wanted.mine else None, created_by=caller.name, created_by_id=caller.user_id, created_at=now)
    await _fill(session, row, wanted, channel)
    await _require_new(session, row, channel)
    session.add(row)
    await session.flush()
    await _record(session, caller, row, channel, "rule_created", "made", now)
    return describe(row, channel)


async def replace(session: AsyncSession, caller: Caller, rule_id: str, wanted: RuleCreate, now: datetime) -> NotificationRule:
    """Change a rule for what happens from now on, by its maker or an admin. `mine` means the jobs of its maker, whoever changes it."""
    row, _ = await _changeable(session, caller, rule_id, "change")
    channel = await _channel_of(session, caller, wanted)
    row.owner_id = (row.created_by_id or caller.user_id) if wanted.mine else None
    await _fill(session, row, wanted, channel)
    await _require_new(session, row, channel)
    await session.flush()
    await _record(session, caller, row, channel, "rule_changed", "changed", now)
    return describe(row, channel)


async def _channel_of(session: AsyncSession, caller: Caller, wanted: RuleCreate) -> ChannelRow:
    """The channel of a rule that the caller may have."""
    found = await channels.find(session, wanted.channel)
    channel = await rows.channel_locked(session, found.id)  # it is not deleted meanwhile
    if channel is None:
        raise not_found("channel", wanted.channel)
    if not caller.may("admin"):
        _require_own(caller, wanted, channel)
    return channel


async def _fill(session: AsyncSession, row: RuleRow, wanted: RuleCreate, channel: ChannelRow) -> None:
    row.channel_id = channel.id
    row.events = [each.value for each in wanted.events]
    row.project = wanted.project
    row.queued_minutes = (wanted.queued_minutes or DEFAULT_MINUTES) if NotificationEvent.QUEUED_LONG in wanted.events else None
    row.goodput_below = (wanted.goodput_below or DEFAULT_GOODPUT) if NotificationEvent.GOODPUT_LOW in wanted.events else None
    row.from_seq = await event_rows.newest_seq(session)


async def _require_new(session: AsyncSession, row: RuleRow, channel: ChannelRow) -> None:
    """Raise already_exists where another rule sends the same events of the same jobs to the channel: each would be sent twice."""
    for other, _ in await rows.rules(session):
        if other.id != row.id and _content(other) == _content(row):
            raise ProblemError(
                "already_exists",
                f"the channel {channel.name} has this rule already ({in_words(row)}); choose other events, jobs or another channel",
            )


def _content(row: RuleRow) -> tuple[object, ...]:
    return row.channel_id, frozenset(row.events), row.project, row.owner_id, row.queued_minutes, row.goodput_below


def _require_own(caller: Caller, wanted: RuleCreate, channel: ChannelRow) -> None:
    if not wanted.mine:
        raise ProblemError(
            "forbidden",
            f"as {caller.role} you may make rules about your own jobs: set mine to true, or ask an admin for one about all jobs",
        )
    if not channel.for_members:
        raise ProblemError(
            "forbidden", f"only admins may make rules that send to the channel {channel.name}; ask one, or choose another channel"
        )


async def delete(session: AsyncSession, caller: Caller, rule_id: str, now: datetime) -> None:
    """Delete a rule, by its maker or an admin. What was to be sent is sent."""
    row, channel = await _changeable(session, caller, rule_id, "delete")
    await _record(session, caller, row, channel, "rule_deleted", "deleted", now)
    await session.delete(row)


async def _changeable(session: AsyncSession, caller: Caller, rule_id: str, verb: str) -> tuple[RuleRow, ChannelRow]:
    """A rule that the caller may change. Raises rule_not_found and not_the_owner."""
    found = next(((rule, channel) for rule, channel in await rows.rules(session) if rule.id == rule_id), None)
    if found is None:
        raise not_found("rule", rule_id)
    row, channel = found
    if not caller.may("admin") and row.created_by_id != caller.user_id:
        raise ProblemError(
            "not_the_owner", f"the rule is {row.created_by}'s: only {row.created_by} or an admin may {verb} it; ask one of them"
        )
    return row, channel


async def _record(session: AsyncSession, caller: Caller, row: RuleRow, channel: ChannelRow, what: str, verb: str, now: datetime) -> None:
    message = f"{caller.name} {verb} a rule of the channel {channel.name} ({in_words(row)})"
    data = {"id": row.id, "channel_id": channel.id}
    await events.record(session, type=f"notification.{what}", actor=caller.actor, cause="request", message=message, data=data, time=now)
