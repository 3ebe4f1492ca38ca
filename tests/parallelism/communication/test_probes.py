"""Probes of sums between real ranks: every rank learns the same of them, and of the links that there are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from paceline.distributed.abort import GroupAborter
from paceline.distributed.compression.options import CompressionOptions
from paceline.distributed.joining import join
from paceline.parallelism.communication.choices import ReductionChoice, choices
from paceline.parallelism.communication.probes import probe
from paceline.training.link import RankPlace
from tests.ranks import run_ranks

#: The machine of each rank.
TWO_BY_TWO, ALL_ON_ONE, UNEVEN = (0, 0, 1, 1), (0, 0), (0, 0, 1)


def probed(world: RankPlace, nodes: tuple[int, ...]) -> dict[str, Any]:
    placed = msgspec.structs.replace(world, node_rank=nodes[world.rank])
    algorithms = frozenset({"backend", "ring", "hierarchical"})
    group = join(placed, GroupAborter(), {"replicate": [list(range(world.world_size))]}, reduces=algorithms)
    groups = group.reduction_groups
    assert groups is not None
    offered = ("backend", "ring", "hierarchical") if groups.peers else ("backend", "ring")
    costs, links = probe(
        group,
        groups,
        choices("auto", "auto", offered),
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
