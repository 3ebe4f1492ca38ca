"""How long a step should take, from arithmetic, message sizes and link speeds. Pure. It ranks plans; it does not promise seconds.

The model is Narayanan et al. 2021 (section 3): a pipeline of p stages and m micro-batches idles (p - 1) / m of its time; messages
take latency + bytes / bandwidth (Hockney 1994), and a ring moves 2 (n - 1) / n of what is all-reduced, half of that for a gather or a
reduce-scatter (Patarasuk and Yuan 2009). Sharding gathers parameters before forward and before backward and scatters gradients in each
micro-batch (Rajbhandari et al. 2020); tensor parallelism adds up activations twice a block in forward and twice in backward (Shoeybi et al. 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from parallelism.estimate import Setup, stages_of
from parallelism.plan import Degrees
from parallelism.shape import COMPUTE_BYTES, MASTER_BYTES, Layer, Shape

#: Backward is one product for the weights and one for what comes in.
BACKWARD_OF_FORWARD = 2.0
#: What selective checkpointing computes again, of a block's forward time: norms, rotations, gates. Taken from no measurement of ours.
SELECTIVE_AGAIN = 0.1
#: Rings that keys and values go round in context parallelism: once in forward; in backward again, with their gradients (Liu et al. 2023).
CONTEXT_PASSES = 3


@dataclass(frozen=True)
class Link:
    bytes_per_second: float
    latency_seconds: float

    def ring(self, ranks: int, size: float, sharers: int = 1) -> float:
        """Seconds of a gather or a reduce-scatter of `size` bytes in all, on a link that `sharers` rings use at a time."""
        steps = ranks - 1
        return steps * (self.latency_seconds + size / ranks * sharers / self.bytes_per_second)

    def message(self, size: float, sharers: int = 1) -> float:
        return self.latency_seconds + size * sharers / self.bytes_per_second


@dataclass(frozen=True)
class Machines:
    """What a job runs on: equal nodes of equal slots."""

    nodes: int
    slots_per_node: int
    memory_bytes: int  # of one slot's device
    flops_per_second: float  # that a rank reaches in matrix products: a measured rate, or a share of the maker's peak
    within: Link  # between the slots of a node
    between: Link  # of one node to the others, all its slots together
    overlaps: bool = True  # whether messages travel while the device computes; on gloo they compete for the same cores
    layer_overhead_seconds: float = 100e-6  # of a layer's forward and backward, whatever the micro-batch: launches, Python

    @property
    def world_size(self) -> int:
        return self.nodes * self.slots_per_node


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step, on the rank that the others wait for."""

    compute: float
    recompute: float  # activations computed again
    bubble: float  # a pipeline's stages waiting for each other
    communication: float  # exposed: what nothing hides

    @property
    def total(self) -> float:
        return self.compute + self.recompute + self.bubble + self.communication


def step_time(shape: Shape, setup: Setup, machines: Machines) -> StepTime:
    work = _Work(shape, setup, machines)
    micro_batches, stages = setup.deal.largest, setup.degrees.pipeline
    compute, recompute, exposed = work.compute(), work.recompute(), work.exposed()
    return StepTime(
        compute=micro_batches * compute,
        recompute=micro_batches * recompute,
        bubble=(stages - 1) * (compute + recompute + exposed),
        communication=micro_batches * exposed + work.exposed_gradients(compute),
    )


def line(axis: str, degrees: Degrees, machines: Machines) -> tuple[Link, int]:
    """The slowest link along an axis, and how many of the axis's lines share it. Tensor parts are neighbours, then come sequence parts,
    shards, replicas, and stages are furthest apart."""
    inner = 1
    for name in ("tensor", "context", "shard", "replicate", "pipeline"):
        if name == axis:
            break
        inner *= getattr(degrees, name)
    spans = inner * getattr(degrees, axis)
    if spans <= machines.slots_per_node and machines.slots_per_node % spans == 0:
        return machines.within, 1
    return machines.between, min(inner, machines.slots_per_node)


@dataclass(frozen=True)
class _Work:
    """Of one micro-batch on the slowest stage."""

    shape: Shape
    setup: Setup
    machines: Machines

    @cached_property
    def _stage(self) -> tuple[Layer, ...]:
        return max(stages_of(self.shape, self.setup.degrees), key=lambda stage: sum(layer.flops for layer in stage))

    def _seconds(self, flops: float) -> float:
        return self.setup.micro_batch_size * flops / self.machines.flops_per_second

    def compute(self) -> float:
        flops = sum(layer.flops for layer in self._stage)
        return self._seconds((1 + BACKWARD_OF_FORWARD) * flops) + len(self._stage) * self.machines.layer_overhead_seconds

    def recompute(self) -> float:
        share = {"none": 0.0, "selective": SELECTIVE_AGAIN, "full": 1.0}[self.setup.activation_checkpointing]
        return share * self._seconds(sum(layer.flops for layer in self._stage if layer.is_block))

    def exposed(self) -> float:
        """Seconds of messages that nothing hides: those between blocks of one layer, and what sharding cannot send ahead."""
        sharding = self._sharding()
        hidden = min(sharding, self.compute()) if self.machines.overlaps else 0.0
        return self._tensor() + self._context() + self._pipeline() + sharding - hidden

    def _tensor(self) -> float:
        ranks = self.setup.degrees.tensor
        if ranks == 1:
            return 0.0
        link, sharers = line("tensor", self.setup.degrees, self.machines)
        sums = 6 if self.setup.activation_checkpointing == "full" else 4
        whole = [self.setup.micro_batch_size * ranks * layer.input for layer in self._stage if layer.is_block]
        return sum(sums * 2 * link.ring(ranks, size, sharers) for size in whole)

    def _context(self) -> float:
        ranks = self.setup.degrees.context
        if ranks == 1:
            return 0.0
        link, sharers = line("context", self.setup.degrees, self.machines)
        whole = [2 * self.setup.micro_batch_size * ranks * layer.input for layer in self._stage if layer.is_block]  # keys and values
        return sum(CONTEXT_PASSES * link.ring(ranks, size, sharers) for size in whole)

    def _pipeline(self) -> float:
        if self.setup.degrees.pipeline == 1:
            return 0.0
        link, sharers = line("pipeline", self.setup.degrees, self.machines)
        size = self.setup.micro_batch_size * max(layer.input for layer in self._stage if layer.is_block)
        return 2 * link.message(size, sharers)

    def _sharding(self) -> float:
        ranks = self.setup.degrees.shard
        if ranks == 1:
            return 0.0
        link, sharers = line("shard", self.setup.degrees, self.machines)
        gathers = 2 if self.setup.reshard_after_forward else 1
        element = COMPUTE_BYTES[self.setup.precision]
        return gathers * link.ring(ranks, element * self._parameters, sharers) + link.ring(ranks, MASTER_BYTES * self._parameters, sharers)

    @property
    def _parameters(self) -> int:
        return sum(layer.parameters for layer in self._stage)

    def exposed_gradients(self, compute: float) -> float:
        """The all-reduce over replicas and sequence parts, once a step; all but the reproducible one hides behind the last backward."""
        degrees = self.setup.degrees
        ranks = degrees.replicate * degrees.context
        if ranks == 1:
            return 0.0
        link, sharers = line("replicate" if degrees.replicate > 1 else "context", degrees, self.machines)
        seconds = 2 * link.ring(ranks, MASTER_BYTES * self._parameters / degrees.shard, sharers)
        if self.setup.reproducible or not self.machines.overlaps:
            return seconds
        return max(0.0, seconds - compute * BACKWARD_OF_FORWARD / (1 + BACKWARD_OF_FORWARD))
