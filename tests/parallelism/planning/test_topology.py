"""Which axes of a mesh span nodes, for even and uneven shares."""

from __future__ import annotations

import pytest

from paceline.parallelism.plan import Coordinates, Degrees
from paceline.parallelism.planning.topology import INNERMOST_FIRST, axes_in_use, ranks_inside, spans_nodes

MESHES = [
    (Degrees(replicate=6), (4, 2)),
    (Degrees(tensor=2, replicate=3), (4, 2)),
    (Degrees(tensor=2, replicate=3), (3, 3)),
    (Degrees(shard=3, replicate=2), (3, 3)),
    (Degrees(shard=2, replicate=3), (4, 1, 1)),
    (Degrees(pipeline=2, shard=2, tensor=2), (4, 4)),
    (Degrees(pipeline=2, tensor=3), (6,)),
    (Degrees(context=2, tensor=2, replicate=2), (5, 3)),
]


@pytest.mark.parametrize(("degrees", "shares"), MESHES)
def test_an_axis_spans_nodes_if_any_two_ranks_that_differ_along_it_alone_are_apart(degrees: Degrees, shares: tuple[int, ...]) -> None:
    node_of = [node for node, count in enumerate(shares) for _ in range(count)]
    places = [Coordinates(degrees, rank) for rank in range(sum(shares))]
    for axis in INNERMOST_FIRST:
        others = [other for other in INNERMOST_FIRST if other != axis]
        groups: dict[tuple[int, ...], set[int]] = {}
        for rank, place in enumerate(places):
            groups.setdefault(tuple(place.along(other) for other in others), set()).add(node_of[rank])
        assert spans_nodes(axis, degrees, shares) == any(len(nodes) > 1 for nodes in groups.values()), axis


def test_axes_are_named_from_the_innermost_on() -> None:
    degrees = Degrees(pipeline=2, shard=3, tensor=2)
    assert axes_in_use(degrees) == ["tensor", "shard", "pipeline"]
    assert [ranks_inside(axis, degrees) for axis in axes_in_use(degrees)] == [1, 2, 6]
