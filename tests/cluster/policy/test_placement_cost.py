"""What a pass of the placement costs does not follow the number of nodes: it looks at room by size, and not at each node for each gang."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from paceline.cluster.policy.placement import NodeView, Request, Room, place

SLOTS, GANGS = 8, 300
FEW, MANY = 500, 5_000


def nodes_with(free: tuple[int, ...], count: int) -> list[NodeView]:
    """A cluster whose nodes have so many free slots, by turns."""
    return [
        NodeView(f"n{number:05d}", f"node-{number:05d}", "cpu", SLOTS, tuple(range(free[number % len(free)])), True)
        for number in range(count)
    ]


def queue() -> list[Request]:
    start = datetime(2026, 11, 23, tzinfo=UTC)
    return [Request(f"j{n:05d}", (1, 2, 4, 16)[n % 4], SLOTS, n % 100, start + timedelta(seconds=n)) for n in range(GANGS)]


def seconds_of_a_pass(free: tuple[int, ...], count: int) -> float:
    """CPU seconds, the least of three passes; what is made once for each node is made before."""
    nodes, gangs, least = nodes_with(free, count), queue(), float("inf")
    for _ in range(3):
        room = Room(nodes, {gang.requirements for gang in gangs})
        began = time.process_time()
        place(gangs, nodes, room)
        least = min(least, time.process_time() - began)
    return least


@pytest.mark.parametrize("free", [(0,), (0, 2, 5, 7)], ids=["none", "mixed"])
def test_ten_times_the_nodes_cost_a_queue_that_waits_less_than_four_times_the_pass(free: tuple[int, ...]) -> None:
    assert seconds_of_a_pass(free, MANY) < 4 * seconds_of_a_pass(free, FEW)
