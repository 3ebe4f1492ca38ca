"""One fixed binary tree over a step's micro-batches. Pure and torch-free.

Floating-point addition is not associative, so a sum is the same to the last bit only if the same pairs are added. Here the
pairs follow from the number of leaves alone: node (level, index) covers the leaves [index * 2^level, (index + 1) * 2^level) that
exist, and is the sum of its two children, or its only child. Whoever holds a contiguous range of leaves can add up the whole
subtrees in it (`frontier`); whoever gets everyone's subtrees finishes the tree. EasyScale (Li et al., SC 2023) trains on this idea.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from parallelism.plan import Deal, Share

T = TypeVar("T")


@dataclass(frozen=True)
class Node:
    level: int  # 0: a leaf
    index: int

    @property
    def is_left(self) -> bool:
        return self.index % 2 == 0

    @property
    def parent(self) -> Node:
        return Node(self.level + 1, self.index // 2)


class TreeSum(Generic[T]):
    """Adds values up as they come, from left to right. `add` may change and return its first argument."""

    def __init__(self, leaves: int, add: Callable[[T, T], T]) -> None:
        self._leaves, self._add = leaves, add
        self._height = (leaves - 1).bit_length()
        self.pending: list[tuple[Node, T]] = []  # subtrees whose sibling is still to come, or is somewhere else

    def put(self, node: Node, value: T) -> None:
        while node.level < self._height and (not node.is_left or self._is_only_child(node)):
            if not node.is_left:
                if not self.pending or self.pending[-1][0] != Node(node.level, node.index - 1):
                    break
                value = self._add(self.pending.pop()[1], value)
            node = node.parent
        self.pending.append((node, value))

    def _is_only_child(self, left: Node) -> bool:
        return (left.index + 1) << left.level >= self._leaves

    @property
    def total(self) -> T:
        """After every leaf was put in, alone or within a subtree."""
        ((root, value),) = self.pending
        if root.level != self._height:
            raise ValueError(f"the sum of {self._leaves} leaves is not finished: only {root} is there")
        return value


def tree_sum(values: Iterable[T], add: Callable[[T, T], T]) -> T:
    """Of all leaves at once; `values` must not be empty."""
    leaves = list(values)
    tree = TreeSum(len(leaves), add)
    for index, value in enumerate(leaves):
        tree.put(Node(0, index), value)
    return tree.total


def frontier(share: Share, leaves: int) -> tuple[Node, ...]:
    """The largest whole subtrees in a contiguous range of s leaves, from left to right: at most 2 log2(s/2 + 1), and one."""
    return tuple(node for node, _ in _walk(share, leaves)[-1])


def most_pending(share: Share, leaves: int) -> int:
    """Sums that are held at a time while a range of s leaves is added up, the newest leaf among them: up to about 2 log2 s."""
    return max((1 + len(before) for before in _walk(share, leaves)[:-1]), default=0)


def gradient_buffers(deal: Deal) -> float:
    """What the busiest rank holds, in sizes of all gradients: pending sums, its packed subtrees, and everyone's for its own slice."""
    shares = [deal.of(rank) for rank in range(deal.ranks)]
    subtrees = [len(frontier(share, deal.micro_batches)) for share in shares]
    pending = max(most_pending(share, deal.micro_batches) for share in shares)
    received = (sum(subtrees) - min(subtrees)) / deal.ranks if deal.ranks > 1 else 0.0
    return pending + max(subtrees) + received


def _walk(share: Share, leaves: int) -> list[list[tuple[Node, None]]]:
    """What is pending at first, and after each leaf of the range."""
    tree = TreeSum[None](leaves, lambda left, right: None)
    history: list[list[tuple[Node, None]]] = [[]]
    for index in share.indices:
        tree.put(Node(0, index), None)
        history.append(list(tree.pending))
    return history
