"""`paceline users`, `sessions`, `audit` and `login-link`: people by their names."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator

VERA: dict[str, Any] = {
    "id": "01JD0000000000000000000003",
    "name": "vera",
    "role": "viewer",
    "disabled": False,
    "created_at": "2026-11-20T12:00:00Z",
    "last_active_at": None,
}
NOBODY = Answer(200, {"items": [], "next_cursor": None})


@pytest.fixture
def known(coordinator: FakeCoordinator) -> FakeCoordinator:
    coordinator.on("GET", "/users", Answer(200, {"items": [VERA], "next_cursor": None}))
    return coordinator


def test_users_are_listed_with_what_they_may_do(paceline: Paceline, known: FakeCoordinator) -> None:
    line = paceline("users", "list").stdout.splitlines()[1].split()
    assert line == ["vera", "viewer", "enabled", "never", "2026-11-20", VERA["id"]]


def test_a_new_user_needs_a_link_which_is_the_next_step(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("POST", "/users", Answer(201, VERA))
    done = paceline("users", "create", "vera", "--role", "viewer")
    assert coordinator.sent("POST", "/users")[0].body == {"name": "vera", "role": "viewer"}
    assert "next: paceline login-link --user vera" in done.stderr


@pytest.mark.parametrize(
    ("command", "change"),
    [
        (("disable", "vera"), {"disabled": True}),
        (("enable", "vera"), {"disabled": False}),
        (("role", "vera", "admin"), {"role": "admin"}),
    ],
)
def test_a_user_is_changed_by_name(paceline: Paceline, known: FakeCoordinator, command: tuple[str, ...], change: dict[str, Any]) -> None:
    known.on("PATCH", f"/users/{VERA['id']}", Answer(200, VERA | change))
    done = paceline("users", *command)
    assert done.returncode == 0, done.stderr
    assert known.sent("GET", "/users")[0].query["name"] == "vera"
    assert known.sent("PATCH", f"/users/{VERA['id']}")[0].body == change


def test_an_unknown_role_is_a_usage_error(paceline: Paceline, known: FakeCoordinator) -> None:
    assert paceline("users", "role", "vera", "root").returncode == 2


def test_a_login_link_is_made_for_a_user_by_name(paceline: Paceline, known: FakeCoordinator) -> None:
    known.on(
        "POST", f"/users/{VERA['id']}/login-link", Answer(201, {"url": "http://x/login?token=t", "expires_at": "2026-11-20T12:15:00Z"})
    )
    assert "http://x/login?token=t" in paceline("login-link", "--user", "vera").stdout


def test_an_unknown_user_is_not_found(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/users", NOBODY)
    done = paceline("users", "disable", "nobody")
    assert done.returncode == 5
    assert "there is no user with the id or name 'nobody'" in done.stderr
    assert "paceline users list" in done.stderr


def test_sessions_say_which_browser_signed_in_how(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    session = {
        "id": "0123456789abcdef0123",
        "user_name": "vera",
        "device": "Firefox on Linux",
        "address": "192.0.2.7",
        "signed_in_by": "api_key",
        "key_prefix": "pk_abc123",
        "last_used_at": None,
        "expires_at": "2026-12-20T12:00:00Z",
    }
    coordinator.on("GET", "/sessions", Answer(200, {"items": [session], "next_cursor": None}))
    coordinator.on("DELETE", f"/sessions/{session['id']}", Answer(200, {}))
    line = paceline("sessions", "list").stdout.splitlines()[1]
    for words in ("vera", "Firefox on Linux", "192.0.2.7", "API key pk_abc123", "2026-12-20"):
        assert words in line
    assert paceline("sessions", "end", str(session["id"])).stdout == f"session {session['id']} has ended\n"


def test_the_audit_asks_for_a_user_and_an_action(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    entry = {
        "time": "2026-11-20T12:00:00Z",
        "user_name": "ada",
        "action": "key.revoked",
        "message": "ada revoked API key pk_abc123... (ci)",
        "address": "192.0.2.7",
        "via": "Firefox on Linux",
    }
    coordinator.on("GET", "/audit", Answer(200, {"items": [entry], "next_cursor": None}))
    printed = paceline("audit", "--user", "ada", "--action", "key").stdout
    assert coordinator.sent("GET", "/audit")[0].query == {"user": "ada", "action": "key", "limit": "30"}
    for words in ("key.revoked", "192.0.2.7", "ada revoked API key pk_abc123... (ci)"):
        assert words in printed
