"""`paceline notify`: channels, rules and the history, as they are typed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator

ROOT = "/notifications"
AT = "2026-11-20T12:00:00Z"
DELIVERY: dict[str, Any] = {
    "id": "01JD0000000000000000000009",
    "channel_id": "01JD0000000000000000000001",
    "channel_name": "team",
    "rule_id": None,
    "event": "test",
    "job_id": None,
    "title": "Test of the channel team",
    "state": "delivered",
    "attempts": 1,
    "answer": "HTTP 200: ok",
    "next_attempt_at": None,
    "created_at": AT,
    "finished_at": AT,
    "digest_id": None,
}
CHANNEL: dict[str, Any] = {
    "id": "01JD0000000000000000000001",
    "name": "team",
    "kind": "slack",
    "target": "hooks.slack.com",
    "recipients": [],
    "enabled": True,
    "for_members": True,
    "created_by": "ada",
    "created_at": AT,
    "last": DELIVERY,
}
RULE: dict[str, Any] = {
    "id": "01JD0000000000000000000002",
    "channel_id": CHANNEL["id"],
    "channel_name": "team",
    "events": ["failed"],
    "project": None,
    "owner_id": None,
    "queued_minutes": None,
    "goodput_below": None,
    "created_by": "ada",
    "created_by_id": "u",
    "created_at": AT,
    "text": "failed: all jobs",
}


def test_channels_are_listed_with_their_last_answer(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", f"{ROOT}/channels", Answer(200, [CHANNEL, {**CHANNEL, "name": "new", "last": None}]))
    _, team, new = paceline("notify", "channels", "list").stdout.splitlines()
    assert team.split() == ["team", "slack", "hooks.slack.com", "on", "delivered:", "HTTP", "200:", "ok", CHANNEL["id"]]
    assert new.split()[3:5] == ["on", "-"]


@pytest.mark.parametrize(
    ("options", "stdin", "body"),
    [
        (["--slack", "https://s/x"], "", {"kind": "slack", "for_members": True, "url": "https://s/x"}),
        (["--webhook", "-"], "https://h/x\n", {"kind": "webhook", "for_members": True, "url": "https://h/x"}),
        (
            ["--email", "a@x.org", "--email", "b@x.org", "--admins-only"],
            "",
            {"kind": "email", "for_members": False, "recipients": ["a@x.org", "b@x.org"]},
        ),
    ],
)
def test_a_channel_is_added(paceline: Paceline, coordinator: FakeCoordinator, options: list[str], stdin: str, body: dict[str, Any]) -> None:
    coordinator.on("POST", f"{ROOT}/channels", Answer(201, {**CHANNEL, "secret": "whsec_1"}))
    done = paceline("notify", "channels", "add", "team", *options, stdin=stdin)
    assert done.returncode == 0, done.stderr
    assert coordinator.sent("POST", f"{ROOT}/channels")[0].body == {"name": "team", **body}
    assert "whsec_1" in done.stdout
    assert "next: paceline notify channels test" in done.stderr


@pytest.mark.parametrize("options", [[], ["--slack", "https://s", "--email", "a@x.org"], ["--webhook", "-"]])
def test_a_channel_of_no_or_two_kinds_is_a_usage_error(paceline: Paceline, coordinator: FakeCoordinator, options: list[str]) -> None:
    assert paceline("notify", "channels", "add", "team", *options).returncode == 2
    assert coordinator.sent("POST", f"{ROOT}/channels") == []


def test_a_test_that_was_not_taken_exits_1_and_says_why(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on(
        "POST",
        f"{ROOT}/channels/team/test",
        Answer(200, DELIVERY),
        Answer(200, {**DELIVERY, "state": "failed", "answer": "HTTP 404: no_service"}),
    )
    assert paceline("notify", "channels", "test", "team").stdout == "delivered: HTTP 200: ok\n"
    refused = paceline("notify", "channels", "test", "team")
    assert (refused.returncode, refused.stdout) == (1, "failed: HTTP 404: no_service\n")


def test_a_channel_is_deleted_with_a_word_about_its_rules(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", f"{ROOT}/rules", Answer(200, [RULE]))
    coordinator.on("DELETE", f"{ROOT}/channels/team", Answer(204))
    code, screen = paceline.at_terminal("notify", "channels", "delete", "team", typed="n\n", until="Delete team?")
    assert code != 0
    assert "1 rule goes with it" in screen
    assert coordinator.sent("DELETE", f"{ROOT}/channels/team") == []
    assert paceline("notify", "channels", "delete", "team", "--yes").returncode == 0
    assert len(coordinator.sent("DELETE", f"{ROOT}/channels/team")) == 1


@pytest.mark.parametrize(("command", "enabled"), [("enable", True), ("disable", False)])
def test_a_channel_is_switched(paceline: Paceline, coordinator: FakeCoordinator, command: str, enabled: bool) -> None:
    coordinator.on("PATCH", f"{ROOT}/channels/a%20b", Answer(200, CHANNEL))
    coordinator.on("PATCH", f"{ROOT}/channels/a b", Answer(200, CHANNEL))
    assert paceline("notify", "channels", command, "a b").returncode == 0
    assert coordinator.requests[-1].body == {"enabled": enabled}


def test_a_rule_is_added_with_its_thresholds(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("POST", f"{ROOT}/rules", Answer(201, RULE))
    done = paceline(
        "notify", "rules", "add", "team", "--on", "failed, queued-long", "--queued-minutes", "60", "--project", "vision", "--mine"
    )
    assert done.returncode == 0, done.stderr
    assert coordinator.sent("POST", f"{ROOT}/rules")[0].body == {
        "channel": "team",
        "events": ["failed", "queued_long"],
        "mine": True,
        "project": "vision",
        "queued_minutes": 60,
    }
    assert done.stdout.startswith("team is told of failed: all jobs\n")


def test_a_rule_is_changed_in_what_is_named_alone(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    before = {**RULE, "events": ["queued_long"], "queued_minutes": 60, "project": "vision"}
    coordinator.on("GET", f"{ROOT}/rules", Answer(200, [before]))
    coordinator.on("PUT", f"{ROOT}/rules/{RULE['id']}", Answer(200, RULE))
    assert paceline("notify", "rules", "change", RULE["id"], "--on", "nan,queued-long").returncode == 0
    assert paceline("notify", "rules", "change", RULE["id"], "--on", "failed", "--project", "", "--mine").returncode == 0
    kept, emptied = (each.body for each in coordinator.sent("PUT", f"{ROOT}/rules/{RULE['id']}"))
    assert kept == {
        "channel": RULE["channel_id"],
        "events": ["nan", "queued_long"],
        "project": "vision",
        "mine": False,
        "queued_minutes": 60,
        "goodput_below": None,
    }
    assert (emptied["events"], emptied["project"], emptied["mine"], emptied["queued_minutes"]) == (["failed"], None, True, None)
    unknown = paceline("notify", "rules", "change", "nosuch", "--on", "failed")
    assert (unknown.returncode, "no rule has the id nosuch" in unknown.stderr) == (5, True)


def test_rules_are_listed_and_deleted(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", f"{ROOT}/rules", Answer(200, [RULE]))
    coordinator.on("DELETE", f"{ROOT}/rules/{RULE['id']}", Answer(204))
    assert paceline("notify", "rules", "list").stdout.splitlines()[1].split() == ["team", "failed:", "all", "jobs", "ada", RULE["id"]]
    assert paceline("notify", "rules", "delete", RULE["id"]).returncode == 0


def test_the_history_is_filtered_and_its_messages_are_sent_again(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    folded = {**DELIVERY, "answer": None, "digest_id": "d", "state": "pending"}
    coordinator.on("GET", f"{ROOT}/deliveries", Answer(200, {"items": [DELIVERY, folded], "next_cursor": None}))
    coordinator.on("POST", f"{ROOT}/deliveries/{DELIVERY['id']}/send-again", Answer(201, DELIVERY))
    done = paceline("notify", "deliveries", "--channel", "team", "--status", "failed", COLUMNS="200")
    query = coordinator.sent("GET", f"{ROOT}/deliveries")[0].query
    assert (query["channel"], query["state"]) == ("team", "failed")
    assert "HTTP 200: ok" in done.stdout
    assert "in a digest" in done.stdout
    assert "to be sent to team" in paceline("notify", "send-again", DELIVERY["id"]).stdout
