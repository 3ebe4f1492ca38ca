"""The association of the sum is a function of the number of leaves alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from math import log2
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.parallelism.plan import assign_evenly
from paceline.parallelism.tree import TreeNode, TreeSum, deduplicate_subtrees, frontier, leaves_of, pending_before_each, tree_sum


def pair(left: Any, right: Any) -> Any:
    return (left, right)


def shares(draw: st.DrawFn, leaves: int, ranks: int) -> list[list[int]]:
    """Every leaf is on some rank, in any order."""
    owners = draw(st.lists(st.integers(0, ranks - 1), min_size=leaves, max_size=leaves))
    order = draw(st.permutations(range(leaves)))
    return [[leaf for leaf in order if owners[leaf] == rank] for rank in range(ranks)]


@st.composite
def dealt(draw: st.DrawFn) -> tuple[int, list[list[int]]]:
    leaves, ranks = draw(st.integers(1, 60)), draw(st.integers(1, 9))
    return leaves, shares(draw, leaves, ranks)


def added_on(share: Iterable[int], leaves: int) -> list[tuple[TreeNode, Any]]:
    tree: TreeSum[Any] = TreeSum(leaves, pair)
    for leaf in share:
        tree.put(TreeNode(0, leaf), leaf)
    return tree.from_left_to_right


def test_the_tree_itself() -> None:
    assert tree_sum(range(1), pair) == 0
    assert tree_sum(range(6), pair) == (((0, 1), (2, 3)), (4, 5))
    assert tree_sum(range(7), pair) == (((0, 1), (2, 3)), ((4, 5), 6))


@given(st.integers(1, 150), st.integers(1, 20))
def test_any_number_of_ranks_adds_the_same_pairs(leaves: int, ranks: int) -> None:
    tree: TreeSum[Any] = TreeSum(leaves, pair)
    for share in assign_evenly(leaves, ranks).shares:
        for node, value in added_on(share, leaves):
            tree.put(node, value)
    assert tree.total == tree_sum(range(leaves), pair)


@given(dealt(), st.randoms())
def test_leaves_in_any_order_on_any_rank_add_the_same_pairs(case: tuple[int, list[list[int]]], random: Random) -> None:
    leaves, everyones = case
    subtrees = [subtree for share in everyones for subtree in added_on(share, leaves)]
    random.shuffle(subtrees)
    tree: TreeSum[Any] = TreeSum(leaves, pair)
    for node, value in subtrees:
        tree.put(node, value)
    assert tree.total == tree_sum(range(leaves), pair)


@given(dealt())
def test_a_sum_goes_on_from_what_is_pending(case: tuple[int, list[list[int]]]) -> None:
    leaves, (first, *others) = case
    pending = dict(added_on(first, leaves))
    tree: TreeSum[Any] = TreeSum(leaves, pair, pending)
    for leaf in itertools.chain.from_iterable(others):
        tree.put(TreeNode(0, leaf), leaf)
    assert tree.total == tree_sum(range(leaves), pair)
    assert pending == dict(tree.from_left_to_right)  # added up in place


@given(dealt())
def test_a_rank_knows_everyones_subtrees_from_the_deal_alone(case: tuple[int, list[list[int]]]) -> None:
    leaves, everyones = case
    for share in everyones:
        nodes = frontier(sorted(share), leaves)
        assert nodes == tuple(node for node, _ in added_on(share, leaves))
        assert leaves_of(nodes, leaves) == tuple(sorted(share))


@given(st.integers(1, 150), st.integers(1, 20))
def test_a_rank_with_a_contiguous_share_holds_few_sums(leaves: int, ranks: int) -> None:
    for share in assign_evenly(leaves, ranks).shares:
        nodes = frontier(share, leaves)
        assert len(nodes) <= 2 * log2(len(share) / 2 + 1) + 1
        most = 1 + max(pending_before_each(share, leaves), default=-1)
        assert len(nodes) <= most <= 2 * log2(len(share) + 1) + 1


@st.composite
def overlapping(draw: st.DrawFn) -> tuple[int, list[tuple[TreeNode, ...]]]:
    """Subtrees of ranks that were not always in the same generations: some leaves are on several ranks."""
    leaves, ranks = draw(st.integers(1, 40)), draw(st.integers(1, 5))
    held = [draw(st.sets(st.integers(0, leaves - 1))) for _ in range(ranks)]
    return leaves, [frontier(sorted(each), leaves) for each in held]


@given(overlapping())
def test_what_several_ranks_hold_is_kept_by_one_of_them(case: tuple[int, list[tuple[TreeNode, ...]]]) -> None:
    leaves, held = case
    kept = deduplicate_subtrees(held)
    everything = [leaf for nodes in kept for leaf in leaves_of(nodes, leaves)]
    assert len(everything) == len(set(everything))
    assert set(everything) == {leaf for nodes in held for leaf in leaves_of(nodes, leaves)}
    assert all(set(mine) <= set(nodes) for mine, nodes in zip(kept, held, strict=True))


def test_of_two_that_hold_the_same_the_one_with_more_of_it_keeps_it() -> None:
    assert deduplicate_subtrees([[TreeNode(0, 0), TreeNode(0, 5)], [TreeNode(1, 0)], [TreeNode(0, 5)]]) == (
        (TreeNode(0, 5),),
        (TreeNode(1, 0),),
        (),
    )


def test_powers_of_two_send_one_subtree_each() -> None:
    for ranks in (1, 2, 4, 8):
        assert all(len(frontier(share, 8)) == 1 for share in assign_evenly(8, ranks).shares)
    assert list(pending_before_each(range(8), 8)) == [0, 1, 1, 2, 1, 2, 2, 3]


def test_a_sum_that_lacks_leaves_is_refused() -> None:
    tree: TreeSum[Any] = TreeSum(3, pair)
    tree.put(TreeNode(0, 0), 0)
    with pytest.raises(ValueError, match="the sum of 3 leaves is not finished"):
        _ = tree.total
