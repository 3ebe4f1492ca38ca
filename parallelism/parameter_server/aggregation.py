"""Which sums a worker pushes, and how a server adds them up. Pure and torch-free.

A worker pushes the sum of each whole subtree among its micro-batches (`parallelism/tree.py`), from left to right; the number of a subtree is
its round. A server finishes the fixed tree, so that its sum has the bits that one process finds, for any number of workers and whatever
order the messages arrive in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from paceline.parallelism.plan import MicroBatchAssignment
from paceline.parallelism.tree import TreeNode, TreeSum, frontier

T = TypeVar("T")


def subtrees(assignment: MicroBatchAssignment) -> dict[int, tuple[TreeNode, ...]]:
    """Return, by worker, the subtrees that it pushes, in the order of its rounds. Ranks without micro-batches are left out."""
    nodes = {rank: frontier(share, assignment.micro_batches) for rank, share in enumerate(assignment.shares)}
    return {rank: found for rank, found in nodes.items() if found}


def rounds(assignment: MicroBatchAssignment) -> dict[int, int]:
    """Return, by worker, how many pushes of a step each server gets from it."""
    return {rank: len(nodes) for rank, nodes in subtrees(assignment).items()}


def add_up(assignment: MicroBatchAssignment, pushes: Iterable[tuple[int, int, T]], add: Callable[[T, T], T]) -> T:
    """Return the sum of all micro-batches. `pushes`: (rank, round, value), all of them; `add` may change its first argument.

    Raises ValueError if one is missing.
    """
    nodes, tree = subtrees(assignment), TreeSum(assignment.micro_batches, add)
    for rank, number, value in pushes:
        tree.put(nodes[rank][number], value)
    return tree.total
