"""What a notification says, and its forms: JSON for webhooks, blocks for Slack, text for e-mail. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

TEST, DIGEST = "test", "digest"
LONGEST_TITLE, LONGEST_DETAIL, LONGEST_NAME = 300, 2000, 120
#: Lines of a digest that are written out.
DIGEST_LINES = 20
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
#: The most that Slack takes of one text.
SLACK_TEXT = 2900
#: The most that Slack takes of a heading.
SLACK_HEADER = 150


class JobPart(msgspec.Struct, frozen=True):
    """The job that a notification is about, at the time when it was written."""

    id: str
    name: str
    project: str
    state: str
    created_by: str
    step: int | None = None
    total_steps: int | None = None


class FailurePart(msgspec.Struct, frozen=True):
    """How the causing rank ended."""

    rank: int
    node: str
    kind: str
    message: str
    where: str = ""


class Notification(msgspec.Struct, frozen=True):
    """One notification. `details`: what a person reads below the title, (name, text)."""

    event: str
    time: datetime
    title: str
    details: list[tuple[str, str]] = []
    url: str = ""
    job: JobPart | None = None
    failure: FailurePart | None = None
    #: The first titles of what a digest stands for.
    lines: list[str] = []
    count: int = 1


def in_one_line(text: str, most: int) -> str:
    """A text without line breaks and other characters that act, cut where it is long."""
    said = " ".join(_CONTROL.sub(" ", text).split())
    return said if len(said) <= most else f"{said[: most - 1]}…"


def stored(message: Notification) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(message)
    return document


def parsed(document: dict[str, Any]) -> Notification:
    return msgspec.convert(document, Notification)


def digest_of(titles: Sequence[str], url: str, now: datetime) -> Notification:
    """One message for many: the first titles, and how many more there are."""
    return Notification(
        event=DIGEST, time=now, title=f"{len(titles)} notifications in one", lines=list(titles[:DIGEST_LINES]), url=url, count=len(titles)
    )


def test_message(channel: str, user: str, url: str, now: datetime) -> Notification:
    return Notification(event=TEST, time=now, title=f"Test of the channel {channel}", details=[("Sent by", user)], url=url)


def plain(message: Notification) -> str:
    """The message as text for people, without its title."""
    lines = [f"{name}: {text}" for name, text in message.details]
    lines += [f"- {line}" for line in message.lines]
    if message.count > len(message.lines) > 0:
        lines.append(f"and {message.count - len(message.lines):,} more")
    if message.url:
        lines += ["", message.url] if lines else [message.url]
    return "\n".join(lines)


def webhook_document(message: Notification, delivery_id: str, channel: str) -> dict[str, Any]:
    """The body of a webhook."""
    document = stored(message)
    details = dict(document.pop("details"))
    return {"id": delivery_id, "channel": channel, **document, "details": details, "text": plain(message)}


def slack_document(message: Notification) -> dict[str, Any]:
    """The body of Slack's incoming webhooks: `text` for notifications, blocks for the channel."""
    body = [f"{name}: {text}" for name, text in message.details] + [f"• {line}" for line in message.lines]
    if message.count > len(message.lines) > 0:
        body.append(f"and {message.count - len(message.lines):,} more")
    is_short = len(_slack(message.title)) <= SLACK_HEADER
    blocks: list[dict[str, Any]] = [{"type": "header" if is_short else "section", "text": _as_written(message.title)}]
    if body:
        blocks.append({"type": "section", "text": _as_written("\n".join(body))})
    if message.url:
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": f"<{_slack(message.url)}|Open in Paceline>"}})
    return {"text": _slack(message.title), "mrkdwn": False, "blocks": blocks}


def _as_written(text: str) -> dict[str, Any]:
    """A text object in which `*`, `_`, `~` and backquotes are nothing but themselves: mrkdwn has no way to escape them. Cut between two
    characters, never inside of an escaped one."""
    escaped = _slack(text)
    if len(escaped) > SLACK_TEXT:
        ends = itertools.accumulate(len(_slack(sign)) for sign in text)
        escaped = _slack(text[: sum(end < SLACK_TEXT for end in ends)]) + "…"
    return {"type": "plain_text", "text": escaped, "emoji": False}


def _slack(text: str) -> str:
    """Text in which nothing is a mention or a link, as Slack asks for."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
