"""How replicas sum their gradients where they are, beside other axes of the mesh."""

from __future__ import annotations

from paceline.cli.api_types import Node, Rank
from paceline.cli.render.gradient_words import gradient_words

HIERARCHICAL = {"algorithm": "hierarchical", "compression": "none"}


def rank_of(number: int, node: str, parked: bool = False, **place: int) -> Rank:
    return Rank(rank=number, node_name=node, node_id=node, slot=0, state="running", place=place, parked=parked)


def node_of(name: str, hostname: str) -> Node:
    return Node(id=name, name=name, state="online", device="cpu", slots=[], address="127.0.0.1", hostname=hostname)


def test_replicas_of_each_shard_are_looked_at_by_themselves() -> None:
    """Four ranks on each of two machines, and yet each sums with one other, on the other machine."""
    apart = [rank_of(2 * replica + shard, "ab"[replica], replicate=replica, shard=shard) for replica in (0, 1) for shard in (0, 1)]
    assert gradient_words(HIERARCHICAL, apart, {}) == "summed over a ring, machine by machine: each is on a machine of its own"
    together = [rank_of(number, "ab"[number // 4], replicate=number // 2, shard=number % 2) for number in range(8)]
    assert gradient_words(HIERARCHICAL, together, {}) == "summed within machines, then between them"


def test_agents_of_one_host_are_one_machine_and_parked_ranks_sum_nothing() -> None:
    ranks = [rank_of(number, f"n{number}", replicate=number) for number in range(4)]
    nodes = {f"n{number}": node_of(f"n{number}", "ab"[number // 2]) for number in range(4)}
    parked = rank_of(4, "n4", parked=True)
    assert gradient_words(HIERARCHICAL, [*ranks, parked], nodes) == "summed within machines, then between them"
    assert gradient_words(HIERARCHICAL, ranks, {}) == "summed over a ring, machine by machine: each is on a machine of its own"


def test_the_default_has_no_words() -> None:
    assert gradient_words({"algorithm": "backend", "compression": "none"}, [], {}) == ""
