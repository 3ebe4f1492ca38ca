"""What a notification says in each form, whatever users have written into it."""

from __future__ import annotations

import json

import pytest

from paceline.api.services.notifications import messages
from paceline.api.services.notifications.messages import SLACK_TEXT, FailurePart, JobPart, Notification, in_one_line
from tests.factories import START

FULL = Notification(
    event="failed",
    time=START,
    title="Job gpt failed",
    details=[("Project", "vision"), ("Step", "7 of 9")],
    url="https://p/jobs/1",
    job=JobPart("1", "gpt", "vision", "failed", "vera", 7, 9),
    failure=FailurePart(1, "node-b", "KeyError", "'x'", "f in a.py:1"),
)


def test_a_stored_message_is_read_back_as_it_was() -> None:
    document = json.loads(json.dumps(messages.stored(FULL)))
    assert messages.parsed(document) == FULL


def test_the_text_for_people_ends_with_the_link() -> None:
    assert messages.plain(FULL) == "Project: vision\nStep: 7 of 9\n\nhttps://p/jobs/1"
    assert messages.plain(Notification(event="test", time=START, title="t", url="https://p")) == "https://p"


def test_a_webhook_has_everything_in_parts_and_as_text() -> None:
    document = messages.webhook_document(FULL, "d-1", "hook")
    assert (document["id"], document["channel"], document["event"], document["title"]) == ("d-1", "hook", "failed", "Job gpt failed")
    assert document["details"] == {"Project": "vision", "Step": "7 of 9"}
    assert document["text"] == messages.plain(FULL)


def test_slack_takes_texts_of_limited_length() -> None:
    long = Notification(event="failed", time=START, title="x" * 5000, details=[("Said", "<&>" * 5000)])
    for block in messages.slack_document(long)["blocks"]:
        assert len(block["text"]["text"]) <= SLACK_TEXT
    said = messages.slack_document(long)["blocks"][1]["text"]["text"]
    assert said.endswith(";…"), "not cut inside of &amp;"


def test_what_users_write_is_no_markup_in_slack() -> None:
    title = "Job *a*_b_ `c` ~d~ <!channel> & <https://evil|x> failed"
    document = messages.slack_document(
        Notification(event="failed", time=START, title=title, details=[("Said", "_x_")], lines=["*y*"], count=1)
    )
    assert document["mrkdwn"] is False
    heading, body = document["blocks"]
    assert (heading["type"], heading["text"]["type"], body["text"]["type"]) == ("header", "plain_text", "plain_text")
    assert heading["text"]["text"] == "Job *a*_b_ `c` ~d~ &lt;!channel&gt; &amp; &lt;https://evil|x&gt; failed" == document["text"]
    assert body["text"]["text"] == "Said: _x_\n• *y*"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nb\r\nc\td", "a b c d"),
        ("\x1b[31mred\x07", "[31mred"),
        ("a\u202eb", "a b"),
        ("Zürich 東京 🚲", "Zürich 東京 🚲"),
        ("", ""),
        ("abcdef", "abcd…"),
    ],
)
def test_what_users_write_becomes_one_line(text: str, expected: str) -> None:
    assert in_one_line(text, 5 if text == "abcdef" else 100) == expected


def test_a_digest_counts_what_it_does_not_list() -> None:
    digest = messages.digest_of([f"t{n}" for n in range(25)], "https://p/notifications", START)
    assert (digest.count, len(digest.lines)) == (25, 20)
    assert "and 5 more" in messages.plain(digest)
    assert "and 5 more" in messages.slack_document(digest)["blocks"][1]["text"]["text"]
    assert "more" not in messages.plain(messages.digest_of(["a", "b"], "", START))
