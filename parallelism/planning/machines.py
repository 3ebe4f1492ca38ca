"""Machines and the links between them, as far as the time of a step depends on them. Pure.

A message takes latency + bytes / bandwidth (Hockney 1994); a ring moves 2 (n - 1) / n of what is all-reduced, half of that for an all-gather or a
reduce-scatter (Patarasuk and Yuan 2009).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from paceline.parallelism.model_shape import MASTER_BYTES
from paceline.parallelism.plan import Degrees
from paceline.parallelism.planning.topology import ranks_inside, spans_nodes


@dataclass(frozen=True)
class Link:
    """A network link: bandwidth and latency."""

    bytes_per_second: float
    latency_seconds: float

    def ring(self, ranks: int, size: float, sharers: int = 1, messages: int = 1) -> float:
        """Return the seconds of an all-gather or reduce-scatter of `size` bytes in total, in `messages` messages, where `sharers` rings
        share the link.
        """
        steps = ranks - 1
        return steps * (messages * self.latency_seconds + size / ranks * sharers / self.bytes_per_second)

    def message(self, size: float, sharers: int = 1) -> float:
        """Return the seconds of one message of `size` bytes, where `sharers` messages share the link."""
        return self.latency_seconds + size * sharers / self.bytes_per_second


@dataclass(frozen=True)
class Machines:
    """The machines that a job runs on: `nodes` with `slots_per_node` slots each, or with the slots of `shares`."""

    nodes: int
    slots_per_node: int  # of the widest
    memory_bytes: int  # of one slot's device
    flops_per_second: float  # of a rank in matrix products: a measured rate, or a share of the maker's peak
    within: Link  # between the slots of a node
    between: Link  # between one node and the others, for all its slots together
    overlaps: bool = True  # whether messages travel while the device computes; on gloo they compete for the same cores
    layer_overhead_seconds: float = 100e-6  # of a layer's forward and backward, for any micro-batch: kernel launches, Python
    memory_bytes_per_second: float = math.inf  # of a rank while the other ranks of its node use memory too; inf: memory takes no time
    activation_bytes_per_second: float = math.inf  # of what is no product: norms, gates, losses; inf: flops_per_second has it in it
    slowdown_beside_others: float = (
        1.0  # how many times as long a rank computes while other ranks of its node do: they share caches and memory
    )
    step_overhead_seconds: float = 0.0  # of a step, whatever is in it: reading a batch, clipping, reports
    tensor_overhead_seconds: float = 0.0  # of a sum of tensor parallelism, besides its messages: sharded tensors are dispatched in Python
    tensor_slowdown: float = (
        1.0  # how many times as long as by bandwidth its messages take: sharded tensors are copied before and after them
    )
    gather_overhead_seconds: float = 0.0  # of a layer that FSDP shards, in each micro-batch, besides its messages: hooks in Python
    gather_slowdown: float = (
        1.0  # how many times as long as by bandwidth FSDP's messages take: gloo, for one, reduce-scatters by all-reduce
    )
    shares: tuple[int, ...] = ()  # the slots of each node, where they are not alike

    @property
    def world_size(self) -> int:
        """The number of slots."""
        return sum(self.shares) or self.nodes * self.slots_per_node

    @property
    def ranks_by_node(self) -> tuple[int, ...]:
        return self.shares or (self.slots_per_node,) * self.nodes

    def passes(self, count: int, elements: float) -> float:
        """Return the seconds in which a rank reads or writes `elements` numbers in its memory, `count` times."""
        return count * MASTER_BYTES * elements / self.memory_bytes_per_second


def axis_link(axis: str, degrees: Degrees, machines: Machines) -> tuple[Link, int]:
    """Return (the slowest link along an axis, how many of the axis's groups share it)."""
    if not spans_nodes(axis, degrees, machines.ranks_by_node):
        return machines.within, 1
    return machines.between, min(ranks_inside(axis, degrees), machines.slots_per_node)
