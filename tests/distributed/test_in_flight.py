"""Tensors that gloo's threads hold: they count as released when no thread references them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.futures import Future

from paceline.distributed.abort import GroupAborter
from paceline.distributed.in_flight import InFlightTensors
from paceline.distributed.joining import join
from paceline.parallelism.mesh import axis_group_ranks
from paceline.parallelism.plan import Degrees
from paceline.training.link import RankPlace
from tests.ranks import run_ranks

ENDS = 20


def kept(tensor: Any) -> Future[Any]:
    """Keep a tensor alive outside of Python, as a collective's work does."""
    future: Future[Any] = Future()
    future.set_result([tensor])
    return future


def test_what_is_held_elsewhere_is_not_back_before_it_is_let_go() -> None:
    lent, values = InFlightTensors(), torch.zeros(3)
    held = [kept(lent.alias(values)) for _ in range(2)]
    assert not lent.is_empty
    held.pop()
    assert not lent.is_empty
    held.pop()
    assert lent.is_empty


class Memory(bytearray):
    """Memory of a tensor, which tells when it is freed."""

    def __init__(self, size: int, freed: Callable[[], None]) -> None:
        super().__init__(size)
        self.freed = freed

    def __del__(self) -> None:
        self.freed()


def test_a_tensor_whose_memory_is_being_freed_is_not_back_yet() -> None:
    """torch gives up the interpreter lock for that, and takes it again: an interpreter that ended meanwhile was killed (SIGABRT)."""
    lent, seen = InFlightTensors(), []
    memory = Memory(16, lambda: seen.append(lent.is_empty))
    held = kept(lent.alias(torch.frombuffer(memory, dtype=torch.float32)))
    del memory
    assert seen == []
    del held
    assert seen == [False]
    assert lent.is_empty


def test_what_is_computed_from_a_loan_is_none() -> None:
    lent = InFlightTensors()
    computed = lent.alias(torch.zeros(3)) + 1
    assert type(computed) is torch.Tensor
    assert lent.is_empty


def test_a_loan_is_the_same_numbers() -> None:
    lent, values = InFlightTensors(), torch.zeros(3, requires_grad=True)
    lent.alias(values).add_(1)
    assert values.tolist() == [1, 1, 1]
    assert lent.is_empty


def parted(world: RankPlace) -> list[bool]:
    """Whether all tensors of every kind of collective are released, each time after `barrier_and_leave`."""
    aborter, found = GroupAborter(), []
    group = join(world, aborter, axis_group_ranks(Degrees(shard=world.world_size)))
    axis_group = group.axis_groups["shard"]
    for _ in range(ENDS):
        group.sum(torch.ones(4)).wait()
        group.all_gather_object(world.rank)
        axis_group.all_gather(torch.empty(2 * world.world_size), torch.ones(2))
        axis_group.reduce_scatter(torch.empty(2), torch.ones(2 * world.world_size))
        axis_group.sum(torch.ones(2))
        group.barrier_and_leave()
        found.append(aborter.in_flight.is_empty and aborter._waiters.is_idle)
    group.close()
    return found


def test_ranks_that_have_parted_have_nothing_under_way() -> None:
    assert run_ranks(parted, 2) == [[True] * ENDS] * 2
