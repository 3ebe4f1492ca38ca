"""How many guesses a peer has, and what one peer is."""

from __future__ import annotations

from datetime import timedelta

import pytest
from starlette.requests import Request

from paceline.api.errors import ProblemError
from paceline.api.middleware.rate_limit import RateLimit, peer_of
from tests import factories


def test_a_flood_of_peers_makes_the_oldest_failures_forgotten_not_all() -> None:
    limit, now = RateLimit(attempts=2, max_peers=3), factories.START
    for number, peer in enumerate(("a", "b", "b", "c", "a", "d")):
        limit.failed(peer, now + timedelta(seconds=number))
    assert len(limit._failures) == 3
    with pytest.raises(ProblemError, match="2 failed attempts"):
        limit.check("a", now + timedelta(seconds=6))
    limit.check("b", now + timedelta(seconds=6))  # forgotten: its last failure was the oldest
    limit.check("a", now + timedelta(seconds=61))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
    ],
)
def test_a_subscriber_with_many_addresses_is_one_peer(one: str, other: str, same: bool) -> None:
    peers = {peer_of(Request({"type": "http", "headers": [], "client": (host, 1)})) for host in (one, other)}
    assert (len(peers) == 1) == same
