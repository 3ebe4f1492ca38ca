"""What happened, in one line."""

from __future__ import annotations

import pytest

from paceline.api.schemas.jobs import Failure
from paceline.api.services.history.incident_views import what_happened


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("bad label", "rank 1 on b raised ValueError: bad label (loss in train.py:22)"),
        ("shapes differ:\n  weight (2, 3)", "rank 1 on b raised ValueError: shapes differ: … (loss in train.py:22)"),
        ("", "rank 1 on b raised ValueError (loss in train.py:22)"),
    ],
)
def test_what_a_rank_raised_is_one_line_that_says_where_it_ends(message: str, told: str) -> None:
    failure = Failure(
        kind="exception", exception="builtins.ValueError", rank=1, node_name="b", generation=1, message=message, where="loss in train.py:22"
    )
    assert what_happened(failure) == told


def test_a_lost_connection_is_told_once() -> None:
    failure = Failure(kind="peer_lost", rank=0, node_name="a", generation=1, message="lost the connection to another rank: reset by peer")
    assert what_happened(failure) == "rank 0 on a lost the connection to another rank: reset by peer"
