"""`paceline keys`: what is asked of the coordinator, and what is shown of its answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator


def key(**changes: Any) -> dict[str, Any]:
    return {
        "id": "01JD0000000000000000000002",
        "name": "ci",
        "prefix": "pk_abc123",
        "role": "member",
        "user_name": "ada",
        "last_used_at": None,
        "expires_at": None,
        "revoked_at": None,
        **changes,
    }


MADE = {**key(), "key": "pk_secret"}


def page(*items: dict[str, Any]) -> Answer:
    return Answer(200, {"items": list(items), "next_cursor": None})


@pytest.mark.parametrize(("options", "asked"), [((), {}), (("--days", "7"), {"expires_in_days": 7})], ids=["no days", "seven days"])
def test_a_key_made_without_days_ends_when_the_key_in_use_does(
    paceline: Paceline, coordinator: FakeCoordinator, options: tuple[str, ...], asked: dict[str, int]
) -> None:
    coordinator.on("POST", "/keys", Answer(201, MADE))
    assert paceline("keys", "create", "ci", *options).returncode == 0
    (request,) = coordinator.sent("POST", "/keys")
    assert request.body == {"name": "ci", "role": "member", **asked}


@pytest.mark.parametrize(
    ("ends", "told"), [("2027-02-25T12:00:00Z", "2027-02-25"), (None, "never")], ids=["after 90 days", "with a key that never ends"]
)
def test_a_new_key_is_shown_with_the_day_on_which_it_ends(
    paceline: Paceline, coordinator: FakeCoordinator, ends: str | None, told: str
) -> None:
    """A script's key ended after 90 days, of which nothing was said: Prometheus was refused, and the alert of a missing coordinator was always on."""
    coordinator.on("POST", "/keys", Answer(201, MADE | {"expires_at": ends}))
    lines = [line.split(maxsplit=1) for line in paceline("keys", "create", "ci").stdout.splitlines()]
    assert lines == [["key", "pk_secret"], ["role", "member"], ["expires", told], ["id", MADE["id"]]]


def test_the_list_has_the_last_use_and_leaves_out_what_is_over(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    over = [key(name="old", revoked_at="2026-01-01T00:00:00Z"), key(name="past", expires_at="2026-01-01T00:00:00Z")]
    coordinator.on("GET", "/keys", page(key(), *over))
    listed = paceline("keys", "list").stdout
    assert listed.splitlines()[1].split() == ["ci", "ada", "member", "active", "never", "never", "pk_abc123", key()["id"]]
    assert "old" not in listed
    whole = paceline("keys", "list", "--all").stdout
    assert "revoked" in whole
    assert "expired" in whole


def test_a_key_is_revoked_by_its_name_or_prefix(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/keys", page(key()))
    coordinator.on("DELETE", f"/keys/{key()['id']}", Answer(200, {}))
    for reference in ("ci", "pk_abc123"):
        assert paceline("keys", "revoke", reference).stdout == f"{reference} is revoked\n"
    assert len(coordinator.sent("DELETE", f"/keys/{key()['id']}")) == 2


def test_a_name_of_two_keys_is_asked_about(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/keys", page(key(), key(prefix="pk_def456", user_name="bob")))
    done = paceline("keys", "revoke", "ci")
    assert done.returncode == 2
    assert "pk_abc123 (ada) or pk_def456 (bob)" in done.stderr


def test_a_name_is_that_of_the_key_that_works_though_one_of_that_name_has_expired(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    """After each renewal the name was that of several keys, of which the list showed one."""
    former = key(id="01JD0000000000000000000001", prefix="pk_old123", expires_at="2026-01-01T00:00:00Z")
    coordinator.on("GET", "/keys", page(key(), former))
    coordinator.on("DELETE", f"/keys/{key()['id']}", Answer(200, {}))
    done = paceline("keys", "revoke", "ci")
    assert done.stdout == "ci is revoked\n", done.stderr


def test_the_day_on_which_a_key_ends_is_that_of_the_users_clock(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    """It was that in UTC: in California a key was refused from the evening before."""
    ending = {"expires_at": "2036-12-01T03:00:00Z"}
    coordinator.on("POST", "/keys", Answer(201, MADE | ending))
    coordinator.on("GET", "/keys", page(key(**ending)))
    for words in (("create", "ci"), ("list",)):
        shown = paceline("keys", *words, TZ="America/Los_Angeles").stdout
        assert "2036-11-30" in shown
        assert "2036-12-01" not in shown
