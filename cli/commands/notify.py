"""Notifications: channels that take them, rules that ask for them, and what was sent."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import quote

import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import NotificationChannel, NotificationDelivery, NotificationRule
from paceline.cli.errors import CliError, NotThereError, UsageProblem
from paceline.cli.help import CommandGroup
from paceline.cli.questions import Yes, confirm
from paceline.cli.render import formats
from paceline.cli.render.output import fields, note, table
from paceline.cli.session import Session, with_session

app = CommandGroup(help="Be told by webhook, Slack or e-mail when jobs fail, finish, wait or lose time.", no_args_is_help=True)
channels = CommandGroup(help="List, add, test, switch and delete channels.", no_args_is_help=True)
rules = CommandGroup(help="List, add, change and delete rules.", no_args_is_help=True)
app.add_typer(channels, name="channels")
app.add_typer(rules, name="rules")

ROOT = "/notifications"
EVENTS = "failed, finished, cancelled, degraded, nan, queued_long, goodput_low, disk_low"
ChannelRef = Annotated[str, typer.Argument(metavar="CHANNEL", help="name or id", show_default=False)]
RuleRef = Annotated[str, typer.Argument(metavar="RULE", help="id, as 'rules list' shows it", show_default=False)]


class DeliveryStateName(StrEnum):
    """States by which the history can be filtered."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


@channels.command("list")
@with_session
def list_channels(session: Session) -> None:
    """List channels with what they answered last. Their addresses are never shown."""
    with session.client() as client:
        documents = client.get(f"{ROOT}/channels")
    session.emit(documents, lambda: _channel_table([parsed(document, NotificationChannel) for document in documents]))


@channels.command("add")
@with_session
def add_channel(
    session: Session,
    name: Annotated[str, typer.Argument(help="what rules call it", show_default=False)],
    webhook: Annotated[str | None, typer.Option(help="an https address that takes signed JSON; -: read it from stdin")] = None,
    slack: Annotated[str | None, typer.Option(help="an incoming webhook of Slack, or what takes its form; -: read it from stdin")] = None,
    email: Annotated[
        list[str] | None, typer.Option(metavar="ADDRESS", help="an e-mail address; repeat it for more", show_default=False)
    ] = None,
    admins_only: Annotated[bool, typer.Option("--admins-only", help="members may not make rules that send to it")] = False,
) -> None:
    """Add a channel. The secret that signs a webhook's requests is shown once."""
    given = {"webhook": webhook, "slack": slack, "email": email or None}
    kinds = [kind for kind, value in given.items() if value is not None]
    if len(kinds) != 1:
        raise UsageProblem("a channel is of one kind", "give one of --webhook, --slack and --email")
    address = webhook or slack
    where: dict[str, Any] = {"recipients": email} if address is None else {"url": _from_stdin() if address == "-" else address}
    with session.client() as client:
        document = client.create(f"{ROOT}/channels", {"name": name, "kind": kinds[0], "for_members": not admins_only, **where})
    shown = [(key, document[key]) for key in ("name", "kind", "target", "secret", "id") if document.get(key)]
    session.emit(document, lambda: fields(shown))
    ref = shlex.quote(name)
    session.next_steps(f"paceline notify channels test {ref}", f"paceline notify rules add {ref} --on failed")


def _from_stdin() -> str:
    text = sys.stdin.readline().strip()
    if not text:
        raise UsageProblem("there is no address on stdin", "pipe it in, or give it in place of -")
    return text


@channels.command("test")
@with_session
def test_channel(session: Session, channel: ChannelRef) -> None:
    """Send a test now, and say what came back. Exits 1 where it was not taken."""
    with session.client() as client:
        document = client.create(f"{ROOT}/channels/{quote(channel, safe='')}/test", None)
    told = parsed(document, NotificationDelivery)
    session.emit(document, lambda: f"{told.state}: {told.answer}")
    if told.state != "delivered":
        raise _NotTakenError(f"{told.channel_name} has not taken the test: {told.answer}")


class _NotTakenError(CliError):
    """The channel answered, and took nothing: the answer is on stdout already."""

    after_answer = True


@channels.command("enable")
@with_session
def enable_channel(session: Session, channel: ChannelRef) -> None:
    """Switch a channel on. What happened while it was off is not told."""
    _switch(session, channel, enabled=True)


@channels.command("disable")
@with_session
def disable_channel(session: Session, channel: ChannelRef) -> None:
    """Switch a channel off: nothing is sent to it, and what waits is dropped. Its rules stay."""
    _switch(session, channel, enabled=False)


def _switch(session: Session, channel: str, *, enabled: bool) -> None:
    with session.client() as client:
        document = client.patch(f"{ROOT}/channels/{quote(channel, safe='')}", {"enabled": enabled})
    session.emit(document, lambda: f"{document['name']} is {'on' if enabled else 'off'}")


@channels.command("delete")
@with_session
def delete_channel(session: Session, channel: ChannelRef, yes: Yes = False) -> None:
    """Delete a channel with its rules. What was sent stays in the history."""
    with session.client() as client:
        found = [each for each in client.get(f"{ROOT}/rules") if channel in (each["channel_id"], each["channel_name"])]
        if not yes:
            many = f"{len(found)} {'rule goes' if len(found) == 1 else 'rules go'} with it"
            confirm(f"The channel {channel} and its address are deleted; {many}.", f"Delete {channel}?")
        client.delete(f"{ROOT}/channels/{quote(channel, safe='')}")
    session.emit({"channel": channel, "deleted": True}, lambda: f"{channel} is deleted")


@rules.command("list")
@with_session
def list_rules(session: Session) -> None:
    """List rules: what is sent to which channel."""
    with session.client() as client:
        documents = client.get(f"{ROOT}/rules")
    session.emit(documents, lambda: _rule_table([parsed(document, NotificationRule) for document in documents]))


On = typer.Option("--on", help=f"comma-separated: {EVENTS}", show_default=False)
QueuedMinutes = Annotated[int | None, typer.Option(min=1, help="for queued_long: minutes in the queue; default: 30", show_default=False)]
GoodputBelow = Annotated[float | None, typer.Option(help="for goodput_low: a share such as 0.8, which is the default", show_default=False)]


@rules.command("add")
@with_session
def add_rule(
    session: Session,
    channel: ChannelRef,
    on: Annotated[str, On],
    project: Annotated[str | None, typer.Option(help="only jobs of this project")] = None,
    mine: Annotated[bool, typer.Option("--mine", help="only your own jobs; a member's rules must be")] = False,
    queued_minutes: QueuedMinutes = None,
    goodput_below: GoodputBelow = None,
) -> None:
    """Add a rule about what happens from now on."""
    body: dict[str, Any] = {"channel": channel, "events": _events(on)}
    optional = {"project": project, "queued_minutes": queued_minutes, "goodput_below": goodput_below}
    body |= {"mine": mine} | {key: value for key, value in optional.items() if value is not None}
    with session.client() as client:
        document = client.create(f"{ROOT}/rules", body)
    session.emit(document, lambda: f"{document['channel_name']} is told of {document['text']}\nid  {document['id']}")


@rules.command("change")
@with_session
def change_rule(
    session: Session,
    rule: RuleRef,
    on: Annotated[str | None, On] = None,
    channel: Annotated[str | None, typer.Option(help="send to this channel instead", show_default=False)] = None,
    project: Annotated[str | None, typer.Option(help="only jobs of this project; an empty one: of all", show_default=False)] = None,
    mine: Annotated[bool | None, typer.Option("--mine/--everybodys", help="whose jobs it is about", show_default=False)] = None,
    queued_minutes: QueuedMinutes = None,
    goodput_below: GoodputBelow = None,
) -> None:
    """Change a rule for what happens from now on; what is not named stays."""
    with session.client() as client:
        before = next((each for each in client.get(f"{ROOT}/rules") if each["id"] == rule), None)
        if before is None:
            raise NotThereError(f"no rule has the id {rule}", "look it up: paceline notify rules list")
        events = _events(on) if on is not None else before["events"]
        body = {
            "channel": channel or before["channel_id"],
            "events": events,
            "project": before["project"] if project is None else project or None,
            "mine": before["owner_id"] is not None if mine is None else mine,
            "queued_minutes": queued_minutes or (before["queued_minutes"] if "queued_long" in events else None),
            "goodput_below": goodput_below or (before["goodput_below"] if "goodput_low" in events else None),
        }
        document = client.put(f"{ROOT}/rules/{quote(rule, safe='')}", body=body)
    session.emit(document, lambda: f"{document['channel_name']} is told of {document['text']}")


@rules.command("delete")
@with_session
def delete_rule(session: Session, rule: RuleRef) -> None:
    """Delete a rule by its id."""
    with session.client() as client:
        client.delete(f"{ROOT}/rules/{quote(rule, safe='')}")
    session.emit({"id": rule, "deleted": True}, lambda: f"rule {rule} is deleted")


@app.command()
@with_session
def deliveries(
    session: Session,
    channel: Annotated[str | None, typer.Option(help="only those of this channel")] = None,
    status: Annotated[
        DeliveryStateName | None, typer.Option(metavar="STATE", help="only those in this state: pending, delivered or failed")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="at most this many")] = 30,
) -> None:
    """Print what was sent and what was answered, the newest first."""
    with session.client() as client:
        documents = client.pages(f"{ROOT}/deliveries", limit, channel=channel, state=status)
    session.emit(documents, lambda: _delivery_table([parsed(document, NotificationDelivery) for document in documents]))


@app.command("send-again")
@with_session
def send_again(session: Session, delivery: Annotated[str, typer.Argument(help="id, as 'deliveries' shows it", show_default=False)]) -> None:
    """Send a message that has ended once more."""
    with session.client() as client:
        document = client.create(f"{ROOT}/deliveries/{quote(delivery, safe='')}/send-again", None)
    session.emit(document, lambda: f"{document['title']}: to be sent to {document['channel_name']}")
    note("'paceline notify deliveries' shows what is answered")


def _channel_table(found: list[NotificationChannel]) -> str:
    rows = [
        [
            each.name,
            each.kind,
            ", ".join(each.recipients) or each.target,
            "on" if each.enabled else "off",
            formats.UNKNOWN if each.last is None else f"{each.last.state}: {each.last.answer or formats.UNKNOWN}",
            each.id,
        ]
        for each in found
    ]
    return table(["NAME", "KIND", "TO", "STATE", "LAST", "ID"], rows, empty="no channels: add one with 'paceline notify channels add'")


def _events(typed: str) -> list[str]:
    return [part.strip().replace("-", "_") for part in typed.split(",") if part.strip()]


def _rule_table(found: list[NotificationRule]) -> str:
    rows = [[each.channel_name, each.text, each.created_by, each.id] for each in found]
    return table(["CHANNEL", "SENDS", "MADE BY", "ID"], rows, empty="no rules: add one with 'paceline notify rules add'")


def _delivery_table(found: list[NotificationDelivery]) -> str:
    rows = [
        [
            f"{each.created_at.astimezone():%Y-%m-%d %H:%M:%S}",
            each.channel_name,
            each.state,
            str(each.attempts),
            each.answer or ("in a digest" if each.digest_id else formats.UNKNOWN),
            each.id,
            each.title,
        ]
        for each in found
    ]
    return table(["TIME", "CHANNEL", "STATE", "ATTEMPTS", "ANSWER", "ID", "WHAT"], rows, empty="nothing was sent", drop=["ID"])
