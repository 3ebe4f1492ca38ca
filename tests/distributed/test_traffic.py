"""The bytes that a rank counts as sent are those that its sockets have carried."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.traffic import Traffic
from paceline.parallelism.mesh import axis_group_ranks
from paceline.parallelism.plan import Degrees
from paceline.training.link import RankPlace
from tests.ranks import run_ranks
from tests.sockets import bytes_sent

ELEMENTS = 300_000
#: gloo's headers: some of 48 bytes for each message, of which a ring has 2 (n - 1).
HEADERS = 0.01


def counted_and_carried(world: RankPlace) -> dict[str, tuple[float, int]]:
    """For each operation: bytes as counted, and as carried by the sockets."""
    aborter, ranks = GroupAborter(), world.world_size
    group = join(world, aborter, axis_group_ranks(Degrees(shard=ranks)))
    axis_group = group.axis_groups["shard"]
    part, whole = torch.ones(ELEMENTS), torch.ones(ranks * ELEMENTS)
    ahead, behind = (world.rank + 1) % ranks, (world.rank - 1) % ranks

    def pass_on() -> None:
        operations = [dist.P2POp(dist.isend, part, ahead), dist.P2POp(dist.irecv, whole[:ELEMENTS], behind)]
        group.end_transfers([group.start_transfer(operations, along="pipeline")])

    asked: dict[str, Callable[[], object]] = {
        "sum": lambda: group.sum(part, along="replicate").wait(),
        "sum along an axis": lambda: axis_group.sum(part),
        "gather": lambda: axis_group.all_gather(whole, part),
        "reduce-scatter": lambda: axis_group.reduce_scatter(part, whole),
        "transfer": pass_on,
    }
    found = {}
    for name, ask in asked.items():
        group.barrier_and_leave()
        before = bytes_sent(aborter)
        group.sent()
        ask()
        counted = sum(group.sent().by_axis.values())
        group.barrier_and_leave()  # what was sent has arrived
        found[name] = (counted, bytes_sent(aborter) - before)
    group.barrier_and_leave()  # every rank has read its sockets: gloo closes them where a peer has closed its own
    group.close()
    return found


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_way_to_send_carries_what_is_counted(ranks: int) -> None:
    for found in run_ranks(counted_and_carried, ranks):
        for name, (counted, carried) in found.items():
            assert counted == pytest.approx(carried, rel=HEADERS), name
        assert found["gather"][0] == (ranks - 1) * 4 * ELEMENTS
        assert found["sum"][0] == pytest.approx(2 * (ranks - 1) / ranks * 4 * ELEMENTS)


def test_a_lap_is_what_was_sent_since_the_last_one() -> None:
    traffic = Traffic(["shard"])
    traffic.add("shard", 5.0)
    with traffic.uncounted():
        traffic.add("shard", 100.0)
    traffic.add("world", 1.0)
    assert traffic.lap() == {"shard": 5.0, "world": 1.0}
    assert traffic.lap() == {"shard": 0.0, "world": 0.0}


def test_an_axis_of_which_a_part_is_not_seen_is_left_out() -> None:
    traffic = Traffic(["shard", "tensor"])
    traffic.exclude("tensor")
    traffic.add("tensor", 4.0)
    assert traffic.lap() == {"shard": 0.0}
