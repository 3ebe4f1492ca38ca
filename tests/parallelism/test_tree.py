"""The association of the sum is a function of the number of leaves alone."""

from __future__ import annotations

from math import log2
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallelism.plan import Deal
from parallelism.tree import Node, TreeSum, frontier, gradient_buffers, most_pending, tree_sum


def pair(left: Any, right: Any) -> Any:
    return (left, right)


def added_on(deal: Deal, rank: int) -> list[tuple[Node, Any]]:
    tree: TreeSum[Any] = TreeSum(deal.micro_batches, pair)
    for leaf in deal.of(rank).indices:
        tree.put(Node(0, leaf), leaf)
    return tree.pending


@given(st.integers(1, 150), st.integers(1, 20))
def test_any_number_of_ranks_adds_the_same_pairs(leaves: int, ranks: int) -> None:
    deal = Deal(leaves, ranks=ranks)
    tree: TreeSum[Any] = TreeSum(leaves, pair)
    for rank in range(ranks):
        for node, value in added_on(deal, rank):
            tree.put(node, value)
    assert tree.total == tree_sum(range(leaves), pair)


def test_the_tree_itself() -> None:
    assert tree_sum(range(1), pair) == 0
    assert tree_sum(range(6), pair) == (((0, 1), (2, 3)), (4, 5))
    assert tree_sum(range(7), pair) == (((0, 1), (2, 3)), ((4, 5), 6))


@given(st.integers(1, 150), st.integers(1, 20))
def test_a_rank_knows_everyones_subtrees_and_holds_few_sums(leaves: int, ranks: int) -> None:
    deal = Deal(leaves, ranks=ranks)
    for rank in range(ranks):
        share = deal.of(rank)
        nodes = frontier(share, leaves)
        assert nodes == tuple(node for node, _ in added_on(deal, rank))
        assert len(nodes) <= 2 * log2(share.count / 2 + 1) + 1
        assert len(nodes) <= most_pending(share, leaves) <= 2 * log2(share.count + 1) + 1


def test_powers_of_two_send_one_subtree_each() -> None:
    for ranks in (1, 2, 4, 8):
        assert all(len(frontier(Deal(8, ranks=ranks).of(rank), 8)) == 1 for rank in range(ranks))
    assert most_pending(Deal(8).own, 8) == 4
    assert [gradient_buffers(Deal(8, ranks=ranks)) for ranks in (1, 2, 8)] == [5, 3 + 1 + 0.5, 1 + 1 + 7 / 8]


def test_a_sum_that_lacks_leaves_is_refused() -> None:
    tree: TreeSum[Any] = TreeSum(3, pair)
    tree.put(Node(0, 0), 0)
    with pytest.raises(ValueError, match="the sum of 3 leaves is not finished"):
        _ = tree.total
