"""Which axes of a mesh are within nodes and which span several, for nodes with any numbers of ranks. Pure.

Ranks count through the nodes, and through the mesh with the innermost axis first. So the groups of an axis, with all inside them, are
windows of consecutive ranks, and an axis stays within nodes if no node ends inside one of its windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from paceline.parallelism.plan import Axis, Degrees

#: Ranks of a tensor group are neighbours; then come context ranks, shards, replicas; stages are furthest apart.
INNERMOST_FIRST: tuple[Axis, ...] = ("tensor", "context", "shard", "replicate", "pipeline")
#: What the ranks along an axis send each other, and when.
MESSAGES = {
    "tensor": "activations, in every block",
    "context": "keys and values, in every block",
    "shard": "parameters and gradients, in every micro-batch",
    "replicate": "gradients, once a step",
    "pipeline": "activations between stages, in every micro-batch",
}


def ranks_inside(axis: str, degrees: Degrees) -> int:
    """Return how many ranks lie between two neighbours along an axis: the product of the axes inside it."""
    return math.prod(getattr(degrees, name) for name in INNERMOST_FIRST[: INNERMOST_FIRST.index(axis)])


def spans_nodes(axis: str, degrees: Degrees, ranks_by_node: Sequence[int]) -> bool:
    """Whether any group along the axis has ranks on several nodes."""
    ranks = getattr(degrees, axis)
    window = ranks_inside(axis, degrees) * ranks
    return ranks > 1 and any(end % window for end in accumulate(ranks_by_node[:-1]))


def axes_in_use(degrees: Degrees) -> list[Axis]:
    """Return the axes with more than one rank, the innermost first."""
    return [axis for axis in INNERMOST_FIRST if getattr(degrees, axis) > 1]
