"""Tensors that another thread holds: known to be back when nothing of it is left there."""

from __future__ import annotations

from typing import Any

import torch
from torch.futures import Future

from distributed.abort import Fence
from distributed.lent import Lent
from distributed.process_group import join
from parallelism.mesh import lines
from parallelism.plan import Degrees
from tests.ranks import run_ranks
from training.link import World

ENDS = 20


def kept(tensor: Any) -> Future[Any]:
    """By something that is not Python's, as a collective's work does."""
    future: Future[Any] = Future()
    future.set_result([tensor])
    return future


def test_what_is_held_elsewhere_is_not_back_before_it_is_let_go() -> None:
    lent, values = Lent(), torch.zeros(3)
    held = [kept(lent.lend(values)) for _ in range(2)]
    assert not lent.is_back
    held.pop()
    assert not lent.is_back
    held.pop()
    assert lent.is_back


def test_a_loan_is_the_same_numbers() -> None:
    lent, values = Lent(), torch.zeros(3, requires_grad=True)
    lent.lend(values).add_(1)
    assert values.tolist() == [1, 1, 1]
    assert lent.is_back


def parted(world: World) -> list[bool]:
    """Whether all that collectives of every kind were lent is back, each time that the ranks have parted."""
    torch.set_num_threads(1)
    fence, found = Fence(), []
    group = join(world, fence, lines(Degrees(shard=world.world_size)))
    line = group.lines["shard"]
    for _ in range(ENDS):
        group.sum(torch.ones(4)).wait()
        group.gather(world.rank)
        line.gather(torch.empty(2 * world.world_size), torch.ones(2))
        line.scatter_sum(torch.empty(2), torch.ones(2 * world.world_size))
        line.sum(torch.ones(2))
        group.part()
        found.append(fence.lent.is_back and fence._waiters.are_idle)
    group.close()
    return found


def test_ranks_that_have_parted_have_nothing_under_way() -> None:
    assert run_ranks(parted, 2) == [[True] * ENDS] * 2
