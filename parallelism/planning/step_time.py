"""Estimate the time of a step from arithmetic, message sizes and link speeds. Pure. It ranks plans; it does not promise seconds.

The model is Narayanan et al. 2021 (section 3): a pipeline of p stages and m micro-batches idles (p - 1) / m of its time; a message takes
latency + bytes / bandwidth (Hockney 1994), and a ring moves 2 (n - 1) / n of what is all-reduced, half of that for an all-gather or a
reduce-scatter (Patarasuk and Yuan 2009). FSDP gathers parameters before forward and before backward and reduce-scatters gradients in each
micro-batch (Rajbhandari et al. 2020); tensor parallelism all-reduces activations twice a block in forward and twice in backward (Shoeybi
et al. 2019).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.parallelism.model_shape import COMPUTE_BYTES, MASTER_BYTES, Layer, ModelShape
from paceline.parallelism.plan import Degrees, partition
from paceline.parallelism.planning.memory import OptimizerKind, Setup, stages_of

#: Backward computes one product for the weights and one for the inputs.
BACKWARD_OF_FORWARD = 2.0
#: What selective checkpointing computes again, of a block's forward time: norms, rotations, gates. Taken from no measurement of ours.
SELECTIVE_AGAIN = 0.1
#: Elements that an update reads and writes for each parameter: parameter, gradient, optimizer state; and for the norm and for clipping.
UPDATE_PASSES: dict[OptimizerKind, int] = {"adamw": 7 + 3, "sgd": 5 + 3}
#: The same for each micro-batch: the parameter in forward and in backward; the gradient is written, read and added to the sum, which is read and written.
MICRO_BATCH_PASSES = 6
#: The same for each all-gather or reduce-scatter of FSDP: parameters are copied out of one message, gradients into one.
SHARDING_PASSES = 3
#: Rings that keys and values go round in context parallelism: once in forward; in backward again, with their gradients (Liu et al. 2023).
CONTEXT_PASSES = 3


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
    """The machines that a job runs on: equal nodes of equal slots."""

    nodes: int
    slots_per_node: int
    memory_bytes: int  # of one slot's device
    flops_per_second: float  # of a rank in matrix products: a measured rate, or a share of the maker's peak
    within: Link  # between the slots of a node
    between: Link  # between one node and the others, for all its slots together
    overlaps: bool = True  # whether messages travel while the device computes; on gloo they compete for the same cores
    layer_overhead_seconds: float = 100e-6  # of a layer's forward and backward, for any micro-batch: kernel launches, Python
    memory_bytes_per_second: float = math.inf  # of a rank while the other ranks of its node use memory too; inf: memory takes no time

    @property
    def world_size(self) -> int:
        """The number of slots."""
        return self.nodes * self.slots_per_node

    def passes(self, count: int, elements: float) -> float:
        """Return the seconds in which a rank reads or writes `elements` numbers in its memory, `count` times."""
        return count * MASTER_BYTES * elements / self.memory_bytes_per_second


@dataclass(frozen=True)
class StepTimeEstimate:
    """Seconds of one step, on the rank that the others wait for."""

    compute: float
    recompute: float  # activations computed again
    bubble: float  # a pipeline's stages waiting for each other
    communication: float  # exposed: not hidden behind computation
    update: float  # of the parameters

    @property
    def total(self) -> float:
        return self.compute + self.recompute + self.bubble + self.communication + self.update


@dataclass(frozen=True)
class StageLoad:
    """The work for one sample on one rank of a pipeline, or on any rank without one, before FSDP shards it."""

    layers: int
    blocks: int
    flops: int  # of its forward
    block_flops: int  # ... in blocks, which checkpointing computes again
    block_inputs: int  # bytes of the inputs of its blocks, in total
    largest_input: int  # bytes of the largest input of a block
    parameters: int


def loads_of(shape: ModelShape, setup: Setup) -> tuple[StageLoad, ...]:
    """Return the different loads of the pipeline's ranks.

    They depend on the degrees of the axes that shard the model and on how its pipeline is partitioned, and on nothing else of the setup.
    """
    return tuple(dict.fromkeys(map(_load, stages_of(shape, setup))))


def _load(stage: Sequence[Layer]) -> StageLoad:
    blocks = [layer for layer in stage if layer.is_block]
    return StageLoad(
        layers=len(stage),
        blocks=len(blocks),
        flops=sum(layer.flops for layer in stage),
        block_flops=sum(layer.flops for layer in blocks),
        block_inputs=sum(layer.input for layer in blocks),
        largest_input=max((layer.input for layer in blocks), default=0),
        parameters=sum(layer.parameters for layer in stage),
    )


def step_time(shape: ModelShape, setup: Setup, machines: Machines, loads: Sequence[StageLoad] = ()) -> StepTimeEstimate:
    """Return the estimated time of a step. `loads`: as from `loads_of`, to save counting them again for setups that shard the model
    alike.
    """
    works = [_Work(load, setup, machines) for load in loads or loads_of(shape, setup)]
    slowest = max(works, key=lambda work: work.compute() + work.recompute() + work.exposed())
    micro_batches, stages = len(partition(setup.micro_batches, 0, setup.degrees.data)), setup.degrees.pipeline
    compute, recompute, exposed = slowest.compute(), slowest.recompute(), slowest.exposed()
    return StepTimeEstimate(
        compute=micro_batches * compute,
        recompute=micro_batches * recompute,
        bubble=(stages - 1) * (compute + recompute + exposed),
        communication=micro_batches * exposed + max(work.exposed_gradients() for work in works),
        update=max(work.update() for work in works),
    )


def axis_link(axis: str, degrees: Degrees, machines: Machines) -> tuple[Link, int]:
    """Return (the slowest link along an axis, how many of the axis's groups share it).

    Ranks of a tensor group are neighbours; then come context ranks, shards, replicas; stages are furthest apart.
    """
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
    """The work of one micro-batch on one stage."""

    load: StageLoad
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
        """Return the seconds of messages that nothing hides: those between blocks of a layer, and what FSDP cannot prefetch."""
        sharding = self._sharding()
        hidden = min(sharding, self.compute()) if self.machines.overlaps else 0.0
        return self._tensor() + self._context() + self._pipeline() + self._unpacking() + sharding - hidden

    def _tensor(self) -> float:
        ranks = self.setup.degrees.tensor
        if ranks == 1:
            return 0.0
        link, sharers = axis_link("tensor", self.setup.degrees, self.machines)
        sums = 6 if self.setup.activation_checkpointing == "full" else 4
        whole = self.setup.micro_batch_size * ranks * self.load.block_inputs
        return sums * 2 * link.ring(ranks, whole, sharers, self.load.blocks)

    def _context(self) -> float:
        ranks = self.setup.degrees.context
        if ranks == 1:
            return 0.0
        link, sharers = axis_link("context", self.setup.degrees, self.machines)
        whole = 2 * self.setup.micro_batch_size * ranks * self.load.block_inputs  # keys and values
        return CONTEXT_PASSES * link.ring(ranks, whole, sharers, self.load.blocks)

    def _pipeline(self) -> float:
        if self.setup.degrees.pipeline == 1:
            return 0.0
        link, sharers = axis_link("pipeline", self.setup.degrees, self.machines)
        return 2 * link.message(self.setup.micro_batch_size * self.load.largest_input, sharers)

    def _sharding(self) -> float:
        ranks = self.setup.degrees.shard
        if ranks == 1:
            return 0.0
        link, sharers = axis_link("shard", self.setup.degrees, self.machines)
        gathers, units = 2 if self.setup.reshard_after_forward else 1, self.load.blocks + 1
        element, parameters = COMPUTE_BYTES[self.setup.precision], self.load.parameters
        gather, scatter = (link.ring(ranks, size * parameters, sharers, units) for size in (element, MASTER_BYTES))
        return gathers * gather + scatter

    def _unpacking(self) -> float:
        """Return the seconds of copying gathered parameters out of messages and gradients into them, while nothing is sent."""
        if self.setup.degrees.shard == 1:
            return 0.0
        times = 3 if self.setup.reshard_after_forward else 2
        return times * self.machines.passes(SHARDING_PASSES, self.load.parameters)

    def exposed_gradients(self) -> float:
        """Return the seconds of the all-reduce over replicas and context ranks, once a step.

        Except for the reproducible one, it hides behind the last backward.
        """
        degrees = self.setup.degrees
        ranks = degrees.replicate * degrees.context
        if ranks == 1:
            return 0.0
        link, sharers = axis_link("replicate" if degrees.replicate > 1 else "context", degrees, self.machines)
        seconds = 2 * link.ring(ranks, MASTER_BYTES * self.load.parameters / degrees.shard, sharers)
        if self.setup.reproducible or not self.machines.overlaps:
            return seconds
        return max(0.0, seconds - self.compute() * BACKWARD_OF_FORWARD / (1 + BACKWARD_OF_FORWARD))
