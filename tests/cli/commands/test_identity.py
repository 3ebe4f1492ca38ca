"""`paceline login`: what is said about the key."""

from __future__ import annotations

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator


def test_login_tells_the_user_from_what_the_key_may_do(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    """`as admin (member)` read as if an admin were a member."""
    coordinator.on("GET", "/auth/me", Answer(200, {"user_id": "u", "name": "admin", "role": "member"}))
    done = paceline("login", "--api-key", "pk_test")
    assert f"signed in to {coordinator.url} as admin, with a key that may do what a member may; stored in " in done.stdout, done.stderr
