"""Ranks as sentences list them."""

from __future__ import annotations

from paceline.cluster.policy.elastic import SlotAssignment
from paceline.cluster.policy.rank_numbers import listed


def test_numbers_and_whatever_has_one_read_alike() -> None:
    assert listed([0, 3]) == listed([SlotAssignment(0, "a", 0), SlotAssignment(3, "b", 0)]) == "0, 3"


def test_one_and_none() -> None:
    assert (listed([7]), listed([])) == ("7", "")
