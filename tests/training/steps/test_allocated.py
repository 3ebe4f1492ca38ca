"""What torch's allocator gave out: counted by hand, whichever thread takes and frees."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch
from torch import Tensor

from distributed.abort import Fence
from distributed.lines import Line
from distributed.process_group import join
from parallelism import mesh
from parallelism.plan import Degrees
from tests.ranks import run_ranks
from training.link import World
from training.steps.allocated import Held, held_by

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

    assert held_by(run) == Held(peak=3 * MIB, kept=0)


def test_what_another_thread_takes_is_taken() -> None:
    held: list[Tensor] = []
    assert held_by(lambda: elsewhere(lambda: held.append(mib(3)))).kept == 3 * MIB


def test_the_peak_is_that_of_all_that_is_there_at_a_time() -> None:
    def run() -> Tensor:
        first, second = mib(1), mib(2)
        del first
        return torch.cat([second, second])

    held: list[Tensor] = []
    assert held_by(lambda: held.append(run())) == Held(peak=6 * MIB, kept=4 * MIB)


def test_what_operators_take_inside_counts() -> None:
    values = torch.zeros(MIB)  # 4 MiB
    assert held_by(lambda: torch.nn.functional.softmax(values.double(), dim=0)).peak == 16 * MIB


def test_what_was_there_before_and_is_given_back_is_less_than_nothing() -> None:
    held: list[Tensor] = []
    held_by(lambda: held.append(mib(2)))
    assert held_by(lambda: elsewhere(held.clear)) == Held(peak=0, kept=-2 * MIB)
    assert held_by(lambda: None) == Held(peak=0, kept=0)


def exchanges(world: World, rounds: int) -> int:
    """Peak of one rank that takes part in so many of each kind of exchange along a line."""
    group = join(world, Fence(), mesh.lines(Degrees(shard=2)))
    try:
        line = group.lines["shard"]
        return held_by(lambda: exchange(line, rounds)).peak
    finally:
        group.close()


def exchange(line: Line, rounds: int) -> None:
    for _ in range(rounds):
        part = torch.ones(MIB)
        whole = torch.empty(2 * MIB)
        line.gather(whole, part)
        line.scatter_sum(part, whole)
        line.sum(whole)


def test_a_peak_does_not_grow_with_the_number_of_transfers() -> None:
    """4 MiB a part, 8 MiB whole, 4 MiB that come in; and for a moment what gloo's threads have not let go of."""
    few, many = max(run_ranks(exchanges, 2, 2)), max(run_ranks(exchanges, 2, ROUNDS))
    assert 16 * MIB <= few <= many <= 2 * 16 * MIB
