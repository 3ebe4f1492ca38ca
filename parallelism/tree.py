"""One fixed binary tree over a step's micro-batches. Pure and torch-free.

Floating-point addition is not associative, so a sum has the same bits only if the same pairs are added. Here the pairs follow from the
number of leaves alone: node (level, index) covers those leaves of [index * 2^level, (index + 1) * 2^level) that exist, and is the sum of
its two children, or its only child. A rank that has some leaves, computed in any order, can sum the whole subtrees among them
(`frontier`); with the subtrees of all ranks, any rank can finish the tree. EasyScale (Li et al., SC 2023) trains on this idea.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class TreeNode:
    """A node of the tree: the sum of the leaves that it covers."""

    level: int  # 0: a leaf
    index: int

    @property
    def first(self) -> int:
        """The first leaf that this node covers."""
        return self.index << self.level

    @property
    def is_left(self) -> bool:
        return self.index % 2 == 0

    @property
    def sibling(self) -> TreeNode:
        return TreeNode(self.level, self.index ^ 1)

    @property
    def parent(self) -> TreeNode:
        return TreeNode(self.level + 1, self.index // 2)

    def leaves(self, total: int) -> range:
        """Return the leaves that this node covers in a tree of `total` leaves."""
        return range(self.first, min(self.first + (1 << self.level), total))

    def __contains__(self, leaf: int) -> bool:
        return leaf >> self.level == self.index


class TreeSum(Generic[T]):
    """Sums values in the tree as they come, in any order. `add` may change and return its first argument.

    `pending`: sums of subtrees whose sibling is not there yet, or is on another rank; it may hold some from the start.
    """

    def __init__(self, leaves: int, add: Callable[[T, T], T], pending: dict[TreeNode, T] | None = None) -> None:
        self.leaves, self._add = leaves, add
        self._height = (leaves - 1).bit_length()
        self.pending: dict[TreeNode, T] = {} if pending is None else pending

    def put(self, node: TreeNode, value: T) -> None:
        """Add the sum of the subtree `node`, and every sum that this completes."""
        for sibling in self.path(node)[0]:
            other = self.pending[sibling]
            value = self._add(other, value) if sibling.is_left else self._add(value, other)
        self.put_completed(node, value)

    def path(self, node: TreeNode) -> tuple[list[TreeNode], TreeNode]:
        """Return the pending subtrees to which the sum of `node` is to be added, one after the other, and the subtree that this completes."""
        siblings = []
        while node.level < self._height:
            if node.sibling in self.pending:
                siblings.append(node.sibling)
            elif node.sibling.first < self.leaves:
                break
            node = node.parent
        return siblings, node

    def put_completed(self, node: TreeNode, value: T) -> None:
        """Add the sum of the subtree that `node` completes: the sum of `node` and of all subtrees along its `path`."""
        siblings, completed = self.path(node)
        for sibling in siblings:
            del self.pending[sibling]
        self.pending[completed] = value

    @property
    def from_left_to_right(self) -> list[tuple[TreeNode, T]]:
        """The pending subtrees and their sums, ordered by their leaves."""
        return sorted(self.pending.items(), key=lambda item: item[0].first)

    @property
    def total(self) -> T:
        """The sum of all leaves. Raises ValueError if a leaf is missing."""
        ((root, value),) = self.pending.items()
        if root.level != self._height:
            raise ValueError(f"the sum of {self.leaves} leaves is not finished: only {root} is there")
        return value


def tree_sum(values: Iterable[T], add: Callable[[T, T], T]) -> T:
    """Return the sum of `values` in the tree; there must be at least one."""
    leaves = list(values)
    tree = TreeSum(len(leaves), add)
    for index, value in enumerate(leaves):
        tree.put(TreeNode(0, index), value)
    return tree.total


def frontier(share: Iterable[int], leaves: int) -> tuple[TreeNode, ...]:
    """Return the largest whole subtrees among some leaves, from left to right.

    A contiguous range of s leaves has at most 2 log2(s/2 + 1) of them, and one.
    """
    tree = TreeSum[None](leaves, add_nothing)
    for index in share:
        tree.put(TreeNode(0, index), None)
    return tuple(node for node, _ in tree.from_left_to_right)


def leaves_of(nodes: Iterable[TreeNode], leaves: int) -> tuple[int, ...]:
    """Return the leaves that `nodes` cover, ascending: the inverse of `frontier`."""
    return tuple(sorted(leaf for node in nodes for leaf in node.leaves(leaves)))


def deduplicate_subtrees(held: Sequence[Iterable[TreeNode]]) -> tuple[tuple[TreeNode, ...], ...]:
    """Return for each rank the subtrees that it holds, without those that another rank contributes.

    Of overlapping subtrees the largest is kept, then the one of the lowest rank.
    """
    offers = [(node, rank) for rank, nodes in enumerate(held) for node in nodes]
    taken: list[tuple[TreeNode, int]] = []
    for node, rank in sorted(offers, key=lambda offer: (-offer[0].level, offer[1], offer[0].index)):
        if not any(node.first in larger for larger, _ in taken):
            taken.append((node, rank))
    return tuple(tuple(sorted((node for node, owner in taken if owner == rank), key=lambda node: node.first)) for rank in range(len(held)))


def pending_before_each(share: Iterable[int], leaves: int) -> Iterator[int]:
    """Yield the number of pending sums before each leaf of `share`, in this order. With the leaf it is up to about 2 log2 s for s leaves."""
    tree = TreeSum[None](leaves, add_nothing)
    for index in share:
        yield len(tree.pending)
        tree.put(TreeNode(0, index), None)


def add_nothing(left: None, right: None) -> None:
    """Add nothing: only the shape of the tree is wanted."""
