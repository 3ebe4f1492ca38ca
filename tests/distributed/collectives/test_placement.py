"""Which ranks stand beside each other, and who sums with whom."""

from __future__ import annotations

import pytest

from paceline.distributed.collectives.placement import hierarchy, ring_order

ROUND_ROBIN = {0: 10, 1: 20, 2: 10, 3: 20}


def test_the_ranks_of_a_machine_stand_side_by_side() -> None:
    assert ring_order(range(4), ROUND_ROBIN) == (0, 2, 1, 3)


def test_machines_sum_within_and_ranks_with_the_same_place_between_them() -> None:
    found = hierarchy(range(4), ROUND_ROBIN)
    assert found is not None
    assert (found.nodes, found.peers) == (((0, 2), (1, 3)), ((0, 1), (2, 3)))


def test_only_the_ranks_that_are_asked_for_count() -> None:
    found = hierarchy((1, 3, 5, 7), {rank: rank // 4 for rank in range(8)})
    assert found is not None
    assert (found.nodes, found.peers) == (((1, 3), (5, 7)), ((1, 5), (3, 7)))


@pytest.mark.parametrize("nodes", [[0, 0, 0], [0, 1, 2], [0, 0, 1], [0]])
def test_one_machine_or_one_rank_on_each_or_not_as_many_on_each_is_no_hierarchy(nodes: list[int]) -> None:
    assert hierarchy(range(len(nodes)), dict(enumerate(nodes))) is None
