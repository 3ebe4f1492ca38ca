"""The places of ranks on machines, and what a ring or a hierarchy makes of them. Pure, no torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Hierarchy(NamedTuple):
    """Ranks by machine, and those that have the same place on every machine."""

    nodes: tuple[tuple[int, ...], ...]
    peers: tuple[tuple[int, ...], ...]


def ring_order(ranks: Sequence[int], node_of: Mapping[int, int]) -> tuple[int, ...]:
    """Return `ranks` with those of one machine side by side: a ring crosses each machine's link once, not once for every rank."""
    return tuple(sorted(ranks, key=lambda rank: (node_of[rank], rank)))


def hierarchy(ranks: Sequence[int], node_of: Mapping[int, int]) -> Hierarchy | None:
    """Return the hierarchy of `ranks`, or None where there is none: all on one machine, one on each, or not as many on each."""
    by_node: dict[int, list[int]] = defaultdict(list)
    for rank in ring_order(ranks, node_of):
        by_node[node_of[rank]].append(rank)
    nodes = tuple(map(tuple, by_node.values()))
    if len(nodes) == 1 or len({len(each) for each in nodes}) > 1 or len(nodes[0]) == 1:
        return None
    return Hierarchy(nodes, tuple(zip(*nodes, strict=True)))
