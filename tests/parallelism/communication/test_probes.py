"""Probes of sums between real ranks: every rank learns the same of them, and of the links that there are."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest
import torch

from paceline.distributed.abort import GroupAborter
from paceline.distributed.collectives.options import Algorithm
from paceline.distributed.compression.options import CompressionOptions
from paceline.distributed.joining import join
from paceline.distributed.process_group import Axes
from paceline.parallelism.communication.choices import ReductionChoice, choices
from paceline.parallelism.communication.probes import probe
from paceline.training.gradient_sums import had_by_ranks
from paceline.training.link import RankPlace
from tests.ranks import run_ranks

#: The machine of each rank.
TWO_BY_TWO, ALL_ON_ONE, UNEVEN = (0, 0, 1, 1), (0, 0), (0, 0, 1)
#: Three slots of one machine and five of another, for four replicas of two shards: those of the first shard are two by two, the others are not.
THREE_AND_FIVE = (0, 0, 0, 1, 1, 1, 1, 1)
REPLICAS_OF_TWO_SHARDS: Axes = {"replicate": [[0, 2, 4, 6], [1, 3, 5, 7]], "shard": [[0, 1], [2, 3], [4, 5], [6, 7]]}


def probed(world: RankPlace, nodes: tuple[int, ...], axes: Axes | None = None, algorithm: Literal["auto", "hierarchical"] = "auto") -> Any:
    placed = msgspec.structs.replace(world, node_rank=nodes[world.rank])
    algorithms: frozenset[Algorithm] = frozenset({"backend", "ring", "hierarchical"})
    group = join(placed, GroupAborter(), axes or {"replicate": [list(range(world.world_size))]}, reduces=algorithms)
    groups = group.reduction_groups
    assert groups is not None
    costs, links = probe(
        group,
        groups,
        choices(algorithm, "auto", frozenset.intersection(*had_by_ranks(group))),
        CompressionOptions(),
        torch.device("cpu"),
        largest=4 << 20,
        machines=len(set(nodes)),
    )
    group.barrier_and_leave()
    return {"costs": costs, "links": links}


@pytest.mark.parametrize("nodes", [TWO_BY_TWO, ALL_ON_ONE, UNEVEN], ids=["2x2", "1x2", "2+1"])
def test_every_rank_learns_the_same(nodes: tuple[int, ...]) -> None:
    ends = run_ranks(probed, len(nodes), nodes)
    assert all(end == ends[0] for end in ends)
    costs, links = ends[0]["costs"], ends[0]["links"]
    assert (ReductionChoice("hierarchical") in costs) == (nodes == TWO_BY_TWO)
    assert all(cost.of(1 << 20) > 0 for cost in costs.values())
    assert costs[ReductionChoice("backend", "top_k")].latency > 0
    assert (links.within is not None, links.between is not None) == {
        TWO_BY_TWO: (True, True),
        ALL_ON_ONE: (True, False),
        UNEVEN: (False, True),
    }[nodes]


@pytest.mark.parametrize("algorithm", ["auto", "hierarchical"])
def test_replicas_of_two_shards_that_lie_differently_on_the_machines_find_the_same_choices(algorithm: str) -> None:
    """Those with a hierarchy timed more ways than the others had: list index out of range, at each start."""
    ends = run_ranks(probed, len(THREE_AND_FIVE), THREE_AND_FIVE, REPLICAS_OF_TWO_SHARDS, algorithm)
    assert all(end == ends[0] for end in ends)
    assert (ReductionChoice("hierarchical") in ends[0]["costs"]) == (algorithm == "hierarchical")
    assert (ends[0]["links"].within is not None, ends[0]["links"].between is not None) == (False, True)
