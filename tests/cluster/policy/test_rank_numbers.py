"""Ranks as sentences list them."""

from __future__ import annotations

from paceline.cluster.policy.elastic import SlotAssignment
from paceline.cluster.policy.rank_numbers import listed


def test_numbers_and_whatever_has_one_read_alike() -> None:
    assert listed([0, 3]) == listed([SlotAssignment(0, "a", 0), SlotAssignment(3, "b", 0)]) == "0, 3"


def test_one_and_none() -> None:
    assert (listed([7]), listed([])) == ("7", "")


def test_many_ranks_one_behind_the_other_are_told_by_the_first_and_the_last() -> None:
    assert listed([0, 1, 2]) == "0, 1, 2"
    assert listed([0, 1, 2, 3]) == "0-3"
    assert listed([*range(7), *range(8, 512), 600]) == "0-6, 8-511, 600"


def test_ranks_out_of_order_keep_theirs() -> None:
    assert listed([5, 4, 3, 2]) == "5, 4, 3, 2"
