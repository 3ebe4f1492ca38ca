"""What torch's allocator gave out: counted by hand, whichever thread takes and frees."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch
from torch import Tensor

from paceline.distributed.abort import GroupAborter
from paceline.distributed.axis_groups import AxisGroup
from paceline.distributed.joining import join
from paceline.parallelism import mesh
from paceline.parallelism.plan import Degrees
from paceline.training.autotune.allocated import MemoryUse, measure_memory
from paceline.training.link import RankPlace
from tests.ranks import run_ranks

MIB = 2**20
ROUNDS = 50


def mib(count: int) -> Tensor:
    return torch.empty(count * MIB, dtype=torch.uint8)


def elsewhere(do: Callable[[], object]) -> None:
    thread = threading.Thread(target=do)
    thread.start()
    thread.join()


def test_what_another_thread_frees_is_free() -> None:
    def run() -> None:
        held: list[Tensor] = []
        for _ in range(ROUNDS):
            held.append(mib(3))
            elsewhere(held.clear)

    assert measure_memory(run) == MemoryUse(peak=3 * MIB, retained=0)


def test_what_another_thread_takes_is_taken() -> None:
    held: list[Tensor] = []
    assert measure_memory(lambda: elsewhere(lambda: held.append(mib(3)))).retained == 3 * MIB


def test_the_peak_is_that_of_all_that_is_there_at_a_time() -> None:
    def run() -> Tensor:
        first, second = mib(1), mib(2)
        del first
        return torch.cat([second, second])

    held: list[Tensor] = []
    assert measure_memory(lambda: held.append(run())) == MemoryUse(peak=6 * MIB, retained=4 * MIB)


def test_what_operators_take_inside_counts() -> None:
    values = torch.zeros(MIB)  # 4 MiB
    assert measure_memory(lambda: torch.nn.functional.softmax(values.double(), dim=0)).peak == 16 * MIB


def test_what_was_there_before_and_is_given_back_is_less_than_nothing() -> None:
    held: list[Tensor] = []
    measure_memory(lambda: held.append(mib(2)))
    assert measure_memory(lambda: elsewhere(held.clear)) == MemoryUse(peak=0, retained=-2 * MIB)
    assert measure_memory(lambda: None) == MemoryUse(peak=0, retained=0)


def exchanges(world: RankPlace, rounds: int) -> int:
    """Return the peak of one rank that takes part in so many of each kind of exchange along an axis."""
    group = join(world, GroupAborter(), mesh.axis_group_ranks(Degrees(shard=2)))
    try:
        line = group.axis_groups["shard"]
        return measure_memory(lambda: exchange(line, rounds)).peak
    finally:
        group.close()


def exchange(axis_group: AxisGroup, rounds: int) -> None:
    for _ in range(rounds):
        part = torch.ones(MIB)
        whole = torch.empty(2 * MIB)
        axis_group.all_gather(whole, part)
        axis_group.reduce_scatter(part, whole)
        axis_group.sum(whole)


def test_a_peak_does_not_grow_with_the_number_of_transfers() -> None:
    """4 MiB a part, 8 MiB whole, 4 MiB that come in; and for a moment what gloo's threads have not let go of."""
    for rounds in (2, ROUNDS):
        assert 16 * MIB <= max(run_ranks(exchanges, 2, rounds)) <= 2 * 16 * MIB
