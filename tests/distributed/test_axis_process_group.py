"""DTensor's collectives go through our axis groups."""

from __future__ import annotations

import threading

import pytest
import torch
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.parallelism.mesh import axis_group_ranks, device_mesh
from paceline.parallelism.plan import Degrees
from paceline.training.link import RankPlace
from tests.ranks import run_ranks
from tests.waiting import wait_until

CPU = torch.device("cpu")
CALL_TIMEOUT_SECONDS = 30.0
SIZES = Degrees(shard=2, tensor=2)


def sent(world: RankPlace) -> dict[str, list[float]]:
    """The bytes that each rank counts for a tensor of its own, over the tensor axis: ranks 0 and 1, and 2 and 3."""
    aborter = GroupAborter()
    group = join(world, aborter, axis_group_ranks(SIZES))
    mesh = device_mesh(SIZES, group, CPU)["tensor"]
    own = torch.full((2,), float(world.rank))
    partial = DTensor.from_local(own, mesh, [Partial()])
    uneven = DTensor.from_local(own[: 2 - world.rank % 2], mesh, [Shard(0)], shape=torch.Size([3]), stride=(1,))
    before = aborter.calls.begin("none").number
    found = {
        "gathered": uneven.full_tensor().tolist(),
        "summed": partial.redistribute(placements=[Replicate()]).to_local().tolist(),
        "scattered": partial.redistribute(placements=[Shard(0)]).to_local().tolist(),
        "largest": all_reduce(own, "max", mesh).tolist(),
        "calls": [float(aborter.calls.begin("none").number - before - 1)],
    }
    assert group.axis_groups["tensor"].waited > 0
    assert group.axis_groups["shard"].waited == 0
    group.close()
    return found


def test_what_a_distributed_tensor_asks_for_is_done_and_counted() -> None:
    for rank, found in enumerate(run_ranks(sent, 4)):
        first, second = (0.0, 1.0) if rank < 2 else (2.0, 3.0)
        total = first + second
        assert found == {
            "gathered": [first, first, second],
            "summed": [total, total],
            "scattered": [total],
            "largest": [second, second],
            "calls": [4.0],
        }


def left_waiting(world: RankPlace) -> str:
    """Rank 0 asks for a whole tensor, rank 1 never comes; it only waits for the end."""
    aborter = GroupAborter()
    sizes = Degrees(tensor=2)
    group = join(world, aborter, axis_group_ranks(sizes))
    part = DTensor.from_local(torch.zeros(1), device_mesh(sizes, group, CPU), [Shard(0)])
    if world.rank == 1:
        with pytest.raises(RuntimeError):
            group.barrier_and_leave()
        return ""

    def abort_later() -> None:
        wait_until(lambda: aborter.calls.awaited is not None, "the call", seconds=CALL_TIMEOUT_SECONDS)
        aborter.abort()

    threading.Thread(target=abort_later).start()
    with pytest.raises(RuntimeError) as freed:
        part.full_tensor()
    return str(freed.value)


def test_an_abort_frees_whoever_waits_for_a_distributed_tensor() -> None:
    assert "generation is over" in run_ranks(left_waiting, 2)[0]
