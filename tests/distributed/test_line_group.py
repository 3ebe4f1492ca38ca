"""What torch's distributed tensors send goes along our lines."""

from __future__ import annotations

import threading

import pytest
import torch
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from distributed.abort import Fence
from distributed.process_group import join
from parallelism.mesh import device_mesh, lines
from parallelism.plan import Degrees
from tests.ranks import run_ranks
from tests.waiting import wait_until
from training.link import World

CPU = torch.device("cpu")
CALL_TIMEOUT_SECONDS = 30.0
SIZES = Degrees(shard=2, tensor=2)


def sent(world: World) -> dict[str, list[float]]:
    """By each rank with a part of its own, over the tensor axis: ranks 0 and 1, and 2 and 3."""
    fence = Fence()
    group = join(world, fence, lines(SIZES))
    mesh = device_mesh(SIZES, group, CPU)["tensor"]
    own = torch.full((2,), float(world.rank))
    partial = DTensor.from_local(own, mesh, [Partial()])
    uneven = DTensor.from_local(own[: 2 - world.rank % 2], mesh, [Shard(0)], shape=torch.Size([3]), stride=(1,))
    before = fence.calls.begin("none").number
    found = {
        "gathered": uneven.full_tensor().tolist(),
        "summed": partial.redistribute(placements=[Replicate()]).to_local().tolist(),
        "scattered": partial.redistribute(placements=[Shard(0)]).to_local().tolist(),
        "largest": all_reduce(own, "max", mesh).tolist(),
        "calls": [float(fence.calls.begin("none").number - before - 1)],
    }
    assert group.lines["tensor"].waited > 0
    assert group.lines["shard"].waited == 0
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


def left_waiting(world: World) -> str:
    """Rank 0 asks for a whole tensor, rank 1 never comes; it only waits for the end."""
    fence = Fence()
    sizes = Degrees(tensor=2)
    group = join(world, fence, lines(sizes))
    part = DTensor.from_local(torch.zeros(1), device_mesh(sizes, group, CPU), [Shard(0)])
    if world.rank == 1:
        with pytest.raises(RuntimeError):
            group.part()
        return ""

    def strike() -> None:
        wait_until(lambda: fence.calls.awaited is not None, "the call", seconds=CALL_TIMEOUT_SECONDS)
        fence.strike()

    threading.Thread(target=strike).start()
    with pytest.raises(RuntimeError) as freed:
        part.full_tensor()
    return str(freed.value)


def test_a_fence_frees_whoever_waits_for_a_distributed_tensor() -> None:
    assert "generation is over" in run_ranks(left_waiting, 2)[0]
