"""How long a step should take, from arithmetic, message sizes and link speeds. Pure. It ranks plans; it does not promise seconds.

The model is Narayanan et al. 2021 (section 3): a pipeline of p stages and m micro-batches idles (p - 1) / m of its time; messages
take latency + bytes / bandwidth (Hockney 1994), and a ring moves 2 (n - 1) / n of what is all-reduced, half of that for a gather or a
reduce-scatter (Patarasuk and Yuan 2009). Sharding gathers parameters before forward and before backward and scatters gradients in each
micro-batch (Rajbhandari et al. 2020); tensor parallelism adds up activations twice a block in forward and twice in backward (Shoeybi et al. 2019).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from parallelism.plan import Degrees, share
from parallelism.planning.memory import OptimizerKind, Setup, stages_of
from parallelism.planning.shape import COMPUTE_BYTES, MASTER_BYTES, Layer, Shape

#: Backward is one product for the weights and one for what comes in.
BACKWARD_OF_FORWARD = 2.0
#: What selective checkpointing computes again, of a block's forward time: norms, rotations, gates. Taken from no measurement of ours.
SELECTIVE_AGAIN = 0.1
#: Elements that an update reads and writes for each parameter: itself, its gradient, the optimizer's state; and for the norm, and to cut it.
UPDATE_PASSES: dict[OptimizerKind, int] = {"adamw": 7 + 3, "sgd": 5 + 3}
#: And each micro-batch: the parameter in forward and in backward; its gradient is written, read and added to the sum, which is read and written.
MICRO_BATCH_PASSES = 6
#: And each gather or scatter of what is sharded: it arrives or leaves in one message, and each parameter is copied out of that or into it.
SHARDING_PASSES = 3
#: Rings that keys and values go round in context parallelism: once in forward; in backward again, with their gradients (Liu et al. 2023).
CONTEXT_PASSES = 3


@dataclass(frozen=True)
class Link:
    bytes_per_second: float
    latency_seconds: float

    def ring(self, ranks: int, size: float, sharers: int = 1, messages: int = 1) -> float:
        """Seconds of a gather or a reduce-scatter of `size` bytes in all, in so many messages, on a link that `sharers` rings use at a time."""
        steps = ranks - 1
        return steps * (messages * self.latency_seconds + size / ranks * sharers / self.bytes_per_second)

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
    memory_bytes_per_second: float = math.inf  # that a rank reads and writes, while the others of its node do; inf: takes no time

    @property
    def world_size(self) -> int:
        return self.nodes * self.slots_per_node

    def passes(self, count: int, elements: float) -> float:
        """Seconds in which a rank goes over so many numbers in its memory, so many times."""
        return count * MASTER_BYTES * elements / self.memory_bytes_per_second


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step, on the rank that the others wait for."""

    compute: float
    recompute: float  # activations computed again
    bubble: float  # a pipeline's stages waiting for each other
    communication: float  # exposed: what nothing hides
    update: float  # of the parameters

    @property
    def total(self) -> float:
        return self.compute + self.recompute + self.bubble + self.communication + self.update


@dataclass(frozen=True)
class Load:
    """What there is to do for one sample on one rank of a pipeline, or of none, before sharding."""

    layers: int
    blocks: int
    flops: int  # of its forward
    block_flops: int  # ... in blocks, which checkpointing computes again
    block_inputs: int  # bytes that come into its blocks, added up
    largest_input: int  # bytes that come into one of them
    parameters: int


def loads_of(shape: Shape, setup: Setup) -> tuple[Load, ...]:
    """Different ones. Depends on the degrees of the axes that cut the model, and on nothing else of the setup but how its pipeline is cut."""
    return tuple(dict.fromkeys(map(_load, stages_of(shape, setup))))


def _load(stage: Sequence[Layer]) -> Load:
    blocks = [layer for layer in stage if layer.is_block]
    return Load(
        layers=len(stage),
        blocks=len(blocks),
        flops=sum(layer.flops for layer in stage),
        block_flops=sum(layer.flops for layer in blocks),
        block_inputs=sum(layer.input for layer in blocks),
        largest_input=max((layer.input for layer in blocks), default=0),
        parameters=sum(layer.parameters for layer in stage),
    )


def step_time(shape: Shape, setup: Setup, machines: Machines, loads: Sequence[Load] = ()) -> StepTime:
    """`loads` saves who compares many setups that cut the model alike the time to count them again."""
    works = [_Work(load, setup, machines) for load in loads or loads_of(shape, setup)]
    slowest = max(works, key=lambda work: work.compute() + work.recompute() + work.exposed())
    micro_batches, stages = len(share(setup.micro_batches, 0, setup.degrees.data)), setup.degrees.pipeline
    compute, recompute, exposed = slowest.compute(), slowest.recompute(), slowest.exposed()
    return StepTime(
        compute=micro_batches * compute,
        recompute=micro_batches * recompute,
        bubble=(stages - 1) * (compute + recompute + exposed),
        communication=micro_batches * exposed + max(work.exposed_gradients() for work in works),
        update=max(work.update() for work in works),
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
    """Of one micro-batch on one stage."""

    load: Load
    setup: Setup
    machines: Machines

    def _seconds(self, flops: float) -> float:
        return self.setup.micro_batch_size * flops / self.machines.flops_per_second

    def compute(self) -> float:
        arithmetic = self._seconds((1 + BACKWARD_OF_FORWARD) * self.load.flops)
        return (
            arithmetic
            + self.load.layers * self.machines.layer_overhead_seconds
            + self.machines.passes(MICRO_BATCH_PASSES, self.load.parameters)
        )

    def recompute(self) -> float:
        again = {"none": 0.0, "selective": SELECTIVE_AGAIN, "full": 1.0}[self.setup.activation_checkpointing]
        return again * self._seconds(self.load.block_flops)

    def update(self) -> float:
        return self.machines.passes(UPDATE_PASSES[self.setup.optimizer], self.load.parameters / self.setup.degrees.shard)

    def exposed(self) -> float:
        """Seconds of messages that nothing hides: those between blocks of one layer, and what sharding cannot send ahead."""
        sharding = self._sharding()
        hidden = min(sharding, self.compute()) if self.machines.overlaps else 0.0
        return self._tensor() + self._context() + self._pipeline() + self._unpacking() + sharding - hidden

    def _tensor(self) -> float:
        ranks = self.setup.degrees.tensor
        if ranks == 1:
            return 0.0
        link, sharers = line("tensor", self.setup.degrees, self.machines)
        sums = 6 if self.setup.activation_checkpointing == "full" else 4
        whole = self.setup.micro_batch_size * ranks * self.load.block_inputs
        return sums * 2 * link.ring(ranks, whole, sharers, self.load.blocks)

    def _context(self) -> float:
        ranks = self.setup.degrees.context
        if ranks == 1:
            return 0.0
        link, sharers = line("context", self.setup.degrees, self.machines)
        whole = 2 * self.setup.micro_batch_size * ranks * self.load.block_inputs  # keys and values
        return CONTEXT_PASSES * link.ring(ranks, whole, sharers, self.load.blocks)

    def _pipeline(self) -> float:
        if self.setup.degrees.pipeline == 1:
            return 0.0
        link, sharers = line("pipeline", self.setup.degrees, self.machines)
        return 2 * link.message(self.setup.micro_batch_size * self.load.largest_input, sharers)

    def _sharding(self) -> float:
        ranks = self.setup.degrees.shard
        if ranks == 1:
            return 0.0
        link, sharers = line("shard", self.setup.degrees, self.machines)
        gathers, units = 2 if self.setup.reshard_after_forward else 1, self.load.blocks + 1
        element, parameters = COMPUTE_BYTES[self.setup.precision], self.load.parameters
        gather, scatter = (link.ring(ranks, size * parameters, sharers, units) for size in (element, MASTER_BYTES))
        return gathers * gather + scatter

    def _unpacking(self) -> float:
        """Of whole parameters, and packing of their gradients, while nothing travels."""
        if self.setup.degrees.shard == 1:
            return 0.0
        times = 3 if self.setup.reshard_after_forward else 2
        return times * self.machines.passes(SHARDING_PASSES, self.load.parameters)

    def exposed_gradients(self) -> float:
        """The all-reduce over replicas and sequence parts, once a step; all but the reproducible one hides behind the last backward."""
        degrees = self.setup.degrees
        ranks = degrees.replicate * degrees.context
        if ranks == 1:
            return 0.0
        link, sharers = line("replicate" if degrees.replicate > 1 else "context", degrees, self.machines)
        seconds = 2 * link.ring(ranks, MASTER_BYTES * self.load.parameters / degrees.shard, sharers)
        if self.setup.reproducible or not self.machines.overlaps:
            return seconds
        return max(0.0, seconds - self.compute() * BACKWARD_OF_FORWARD / (1 + BACKWARD_OF_FORWARD))
