"""`paceline keys`: what is asked of the coordinator."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator

MADE = {"key": "pk_secret", "role": "member", "id": "01JD0000000000000000000001"}


@pytest.mark.parametrize(("options", "asked"), [((), {}), (("--days", "7"), {"expires_in_days": 7})], ids=["no days", "seven days"])
def test_a_key_made_without_days_ends_when_the_key_in_use_does(
    paceline: Paceline, coordinator: FakeCoordinator, options: tuple[str, ...], asked: dict[str, int]
) -> None:
    coordinator.on("POST", "/keys", Answer(201, MADE))
    assert paceline("keys", "create", "ci", *options).returncode == 0
    (request,) = coordinator.sent("POST", "/keys")
    assert request.body == {"name": "ci", "role": "member", **asked}


def test_login_tells_the_user_from_what_the_key_may_do(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    """`as admin (member)` read as if an admin were a member."""
    coordinator.on("GET", "/auth/me", Answer(200, {"user_id": "u", "name": "admin", "role": "member"}))
    done = paceline("login", "--api-key", "pk_test")
    assert f"signed in to {coordinator.url} as admin, with a key that may do what a member may; stored in " in done.stdout, done.stderr
