"""The ranks of each axis group of the mesh."""

from __future__ import annotations

import pytest

from paceline.distributed.solo_group import SoloGroup
from paceline.parallelism.mesh import axis_group_ranks, exclude_unseen
from paceline.parallelism.plan import Degrees


def test_axes_of_one_rank_are_left_out_and_neighbours_are_shards_of_one_replica() -> None:
    assert Degrees(shard=2, replicate=3).sizes == {"replicate": 3, "shard": 2}
    assert axis_group_ranks(Degrees(shard=2, replicate=3)) == {"replicate": [[0, 2, 4], [1, 3, 5]], "shard": [[0, 1], [2, 3], [4, 5]]}
    assert axis_group_ranks(Degrees()) == {}


def test_each_line_differs_in_one_axis_only() -> None:
    found = axis_group_ranks(Degrees(pipeline=2, shard=2, tensor=2))
    assert found["tensor"] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert found["shard"] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert found["pipeline"] == [[0, 4], [1, 5], [2, 6], [3, 7]]


@pytest.mark.parametrize(
    ("degrees", "known"), [(Degrees(shard=2), False), (Degrees(tensor=2, replicate=2), False), (Degrees(context=2), True)], ids=str
)
def test_on_gpus_exposed_communication_is_known_only_where_torch_itself_sends_nothing(degrees: Degrees, known: bool) -> None:
    group = SoloGroup()
    exclude_unseen(degrees, group)
    assert group.exposure.is_whole == known
