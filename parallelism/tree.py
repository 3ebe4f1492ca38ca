"""One fixed binary tree over a step's micro-batches. Pure and torch-free.

Floating-point addition is not associative, so a sum is the same to the last bit only if the same pairs are added. Here the
pairs follow from the number of leaves alone: node (level, index) covers the leaves [index * 2^level, (index + 1) * 2^level) that
exist, and is the sum of its two children, or its only child. Whoever holds some leaves, in whatever order they came, can add up the
whole subtrees among them (`frontier`); whoever gets everyone's subtrees finishes the tree. EasyScale (Li et al., SC 2023) trains on
this idea.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Node:
    level: int  # 0: a leaf
    index: int

    @property
    def first(self) -> int:
        """Its first leaf."""
        return self.index << self.level

    @property
    def is_left(self) -> bool:
        return self.index % 2 == 0

    @property
    def sibling(self) -> Node:
        return Node(self.level, self.index ^ 1)

    @property
    def parent(self) -> Node:
        return Node(self.level + 1, self.index // 2)

    def leaves(self, total: int) -> range:
        """Those that it covers in a tree of `total` leaves."""
        return range(self.first, min(self.first + (1 << self.level), total))

    def __contains__(self, leaf: int) -> bool:
        return leaf >> self.level == self.index


class TreeSum(Generic[T]):
    """Adds values up as they come, in any order. `add` may change and return its first argument.

    `pending` are the subtrees whose sibling is still to come, or is somewhere else; it may hold some from the start.
    """

    def __init__(self, leaves: int, add: Callable[[T, T], T], pending: dict[Node, T] | None = None) -> None:
        self.leaves, self._add = leaves, add
        self._height = (leaves - 1).bit_length()
        self.pending: dict[Node, T] = {} if pending is None else pending

    def put(self, node: Node, value: T) -> None:
        while node.level < self._height:
            if node.sibling in self.pending:
                other = self.pending.pop(node.sibling)
                value = self._add(value, other) if node.is_left else self._add(other, value)
            elif node.sibling.first < self.leaves:
                break
            node = node.parent
        self.pending[node] = value

    @property
    def from_left_to_right(self) -> list[tuple[Node, T]]:
        return sorted(self.pending.items(), key=lambda item: item[0].first)

    @property
    def total(self) -> T:
        """After every leaf was put in, alone or within a subtree."""
        ((root, value),) = self.pending.items()
        if root.level != self._height:
            raise ValueError(f"the sum of {self.leaves} leaves is not finished: only {root} is there")
        return value


def tree_sum(values: Iterable[T], add: Callable[[T, T], T]) -> T:
    """Of all leaves at once; `values` must not be empty."""
    leaves = list(values)
    tree = TreeSum(len(leaves), add)
    for index, value in enumerate(leaves):
        tree.put(Node(0, index), value)
    return tree.total


def frontier(share: Iterable[int], leaves: int) -> tuple[Node, ...]:
    """The largest whole subtrees among some leaves, from left to right: in a contiguous range of s at most 2 log2(s/2 + 1), and one."""
    tree = TreeSum[None](leaves, neither)
    for index in share:
        tree.put(Node(0, index), None)
    return tuple(node for node, _ in tree.from_left_to_right)


def leaves_of(nodes: Iterable[Node], leaves: int) -> tuple[int, ...]:
    """The other way round."""
    return tuple(sorted(leaf for node in nodes for leaf in node.leaves(leaves)))


def held_once(held: Sequence[Iterable[Node]]) -> tuple[tuple[Node, ...], ...]:
    """By rank, what it holds without what another rank brings too: of subtrees that overlap, the largest stays, then the first rank's."""
    offers = [(node, rank) for rank, nodes in enumerate(held) for node in nodes]
    taken: list[tuple[Node, int]] = []
    for node, rank in sorted(offers, key=lambda offer: (-offer[0].level, offer[1], offer[0].index)):
        if not any(node.first in larger for larger, _ in taken):
            taken.append((node, rank))
    return tuple(tuple(sorted((node for node, owner in taken if owner == rank), key=lambda node: node.first)) for rank in range(len(held)))


def pending_before_each(share: Iterable[int], leaves: int) -> Iterator[int]:
    """Sums that are held as each leaf of a share of s comes, in this order; with it up to about 2 log2 s."""
    tree = TreeSum[None](leaves, neither)
    for index in share:
        yield len(tree.pending)
        tree.put(Node(0, index), None)


def neither(left: None, right: None) -> None:
    """Sums of nothing: only the shape of the tree is asked for."""
