"""Estimate the time of a step from arithmetic, message sizes and link speeds. Pure. It ranks plans; it does not promise seconds.

The model is Narayanan et al. 2021 (section 3): a pipeline of p stages and m micro-batches idles (p - 1) / m of its time, other schedules as
they say (`schedules.py`); a message takes latency + bytes / bandwidth (Hockney 1994), and a ring moves 2 (n - 1) / n of what is all-reduced,
half of that for an all-gather or a reduce-scatter (Patarasuk and Yuan 2009). FSDP gathers parameters before forward and before backward and reduce-scatters gradients in each
micro-batch (Rajbhandari et al. 2020); tensor parallelism all-reduces activations twice a block in forward and twice in backward (Shoeybi
et al. 2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paceline.parallelism.model_shape import COMPUTE_BYTES, MASTER_BYTES, Layer, ModelShape
from paceline.parallelism.plan import partition
from paceline.parallelism.planning.gathered import units_of
from paceline.parallelism.planning.gradient_copies import pushed_copies
from paceline.parallelism.planning.machines import Machines, axis_link
from paceline.parallelism.planning.memory import OptimizerKind, TrainingSetup, stages_of
from paceline.parallelism.planning.sum_time import sum_seconds

#: Backward computes one product for the weights and one for the inputs.
BACKWARD_OF_FORWARD = 2.0
#: What selective checkpointing computes again, of a block's forward time: norms, rotations, gates. Taken from no measurement of ours.
SELECTIVE_AGAIN = 0.1
#: Times that a byte kept for backward is written or read, by kernels that do one operation each: it is written and read in forward, read in
#: backward, and its gradient is written and read.
ACTIVATION_PASSES = 5
#: Elements that an update reads and writes for each parameter: parameter, gradient, optimizer state; and for the norm and for clipping. The first two
#: have fused kernels; of the others every operation is counted.
UPDATE_PASSES: dict[OptimizerKind, int] = {"adamw": 7 + 3, "sgd": 5 + 3, "nadam": 28 + 3, "rmsprop": 21 + 3, "adafactor": 20 + 3}
#: The same for each micro-batch: the parameter in forward and in backward; the gradient is written, read and added to the sum, which is read and written.
MICRO_BATCH_PASSES = 6
#: The same for each all-gather or reduce-scatter of FSDP: parameters are copied out of one message, gradients into one.
SHARDING_PASSES = 3
#: Rings that keys and values go round in context parallelism: once in forward; in backward again, with their gradients (Liu et al. 2023).
CONTEXT_PASSES = 3

#: Messages of a step with parameter servers that follow each other: request, parameters, header, gradients, norms.
SERVER_ROUNDS = 5


@dataclass(frozen=True)
class StepTimeEstimate:
    """Seconds of one step, on the rank that the others wait for."""

    compute: float
    recompute: float  # activations computed again
    bubble: float  # a pipeline's stages waiting for each other
    communication: float  # exposed: not hidden behind computation
    update: float  # of the parameters
    overhead: float = 0.0  # of a step, whatever is in it
    by_axis: Mapping[str, float] = field(default_factory=dict)  # the parts of `communication`
    memory: float = 0.0  # the part of `compute` and `recompute` that goes through memory

    @property
    def total(self) -> float:
        return self.compute + self.recompute + self.bubble + self.communication + self.update + self.overhead


@dataclass(frozen=True)
class StageLoad:
    """The work for one sample on one rank of a pipeline, or on any rank without one, before FSDP shards it."""

    layers: int
    blocks: int
    flops: int  # of its forward
    block_flops: int  # ... in blocks, which checkpointing computes again
    block_messages: int  # bytes of the inputs of its blocks, in total, on all its tensor ranks together, each part of a sequence once
    keys_and_values: int  # bytes of those of its blocks, in total, on one rank
    largest_input: int  # bytes of the largest input of a block
    parameters: int
    units: int  # that FSDP gathers before forward and before backward; what is in none is gathered once
    unit_parameters: int
    saved: int  # bytes that it keeps for backward
    block_saved: int  # ... in blocks


def loads_of(shape: ModelShape, setup: TrainingSetup) -> tuple[StageLoad, ...]:
    """Return the different loads of the pipeline's ranks.

    They depend on the degrees of the axes that shard the model and on how its pipeline and its
    units are partitioned, and on nothing else of the setup.
    """
    stages, schedule = stages_of(shape, setup), setup.schedule
    ranks = ([layer for stage in schedule.stages_of(rank) for layer in stages[stage]] for rank in range(setup.degrees.pipeline))
    return tuple(dict.fromkeys(_load(layers, setup) for layers in ranks))


def _load(layers: Sequence[Layer], setup: TrainingSetup) -> StageLoad:
    blocks = [layer for layer in layers if layer.is_block]
    units = units_of(layers, setup.least_in_unit)
    return StageLoad(
        layers=len(layers),
        blocks=len(blocks),
        flops=sum(layer.flops for layer in layers),
        block_flops=sum(layer.flops for layer in blocks),
        block_messages=sum(layer.input * (1 if layer.whole_input else setup.degrees.tensor) for layer in blocks),
        keys_and_values=sum(layer.keys_and_values for layer in blocks),
        largest_input=max((layer.input for layer in blocks), default=0),
        parameters=sum(layer.parameters for layer in layers),
        units=len(units),
        unit_parameters=sum(layers[index].parameters for unit in units for index in unit),
        saved=sum(layer.saved for layer in layers),
        block_saved=sum(layer.saved for layer in blocks),
    )


def step_time(shape: ModelShape, setup: TrainingSetup, machines: Machines, loads: Sequence[StageLoad] = ()) -> StepTimeEstimate:
    """Return the estimated time of a step. `loads`: as from `loads_of`, to save counting them again for setups that shard the model
    alike.
    """
    works = [_Work(load, setup, machines) for load in loads or loads_of(shape, setup)]
    slowest = max(works, key=lambda work: work.compute() + work.recompute() + work.exposed())
    micro_batches, schedule = len(partition(setup.micro_batches, 0, setup.degrees.data)), setup.schedule
    idle = schedule.idle / (schedule.chunks * (1 + BACKWARD_OF_FORWARD))  # in units of a micro-batch on a rank
    compute, recompute, exposed = slowest.compute(), slowest.recompute(), slowest.exposed()
    gradients = max(work.exposed_gradients() for work in works)
    by_axis = {axis: micro_batches * seconds for axis, seconds in slowest.exposed_by_axis().items()}
    if gradients:
        by_axis[setup.gradient_axis] = by_axis.get(setup.gradient_axis, 0.0) + gradients
    return StepTimeEstimate(
        compute=micro_batches * compute,
        recompute=micro_batches * recompute,
        bubble=idle * (compute + recompute + exposed),
        communication=micro_batches * exposed + gradients,
        update=max(work.update() for work in works),
        overhead=machines.step_overhead_seconds,
        by_axis=by_axis,
        memory=micro_batches * slowest.memory(),
    )


@dataclass(frozen=True)
class _Work:
    """The work of one micro-batch on one stage."""

    load: StageLoad
    setup: TrainingSetup
    machines: Machines

    def _seconds(self, flops: float) -> float:
        return self._beside * self.setup.micro_batch_size * flops / self.machines.flops_per_second

    @property
    def _beside(self) -> float:
        return self.machines.slowdown_beside_others if max(self.machines.ranks_by_node) > 1 else 1.0

    def compute(self) -> float:
        arithmetic = self._seconds((1 + BACKWARD_OF_FORWARD) * self.load.flops)
        return arithmetic + self._overhead(self.load.layers) + self._weights() + self._activations(self.load.saved)

    def recompute(self) -> float:
        forward = self._seconds(self.load.block_flops) + self._overhead(self.load.blocks) / (1 + BACKWARD_OF_FORWARD)
        return self._again * forward + self._activations_again()

    def _overhead(self, layers: int) -> float:
        return self._beside * layers * self.machines.layer_overhead_seconds

    def memory(self) -> float:
        """Return the seconds of `compute` and `recompute` in which weights, gradients and activations are written and read."""
        return self._weights() + self._activations(self.load.saved) + self._activations_again()

    @property
    def _again(self) -> float:
        return {"none": 0.0, "selective": SELECTIVE_AGAIN, "full": 1.0}[self.setup.activation_checkpointing]

    def _weights(self) -> float:
        return self.machines.passes(MICRO_BATCH_PASSES, self.load.parameters)

    def _activations(self, saved: float, passes: float = ACTIVATION_PASSES) -> float:
        return self._beside * self.setup.micro_batch_size * passes * saved / self.machines.activation_bytes_per_second

    def _activations_again(self) -> float:
        """Return the seconds in which what checkpointing has dropped is written and read once more: all of it in either mode."""
        return self._activations(self.load.block_saved, 2) if self._again else 0.0

    def update(self) -> float:
        shards = self.setup.degrees.servers or self.setup.degrees.shard
        return self.machines.passes(UPDATE_PASSES[self.setup.optimizer], self.load.parameters / shards)

    def exposed(self) -> float:
        return sum(self.exposed_by_axis().values())

    def exposed_by_axis(self) -> dict[str, float]:
        """Return the seconds of messages that nothing hides, by axis: those between blocks of a layer, and what FSDP cannot prefetch."""
        sharding = self._sharding()
        hidden = min(sharding, self.compute()) if self.machines.overlaps else 0.0
        seconds = {
            "tensor": self._tensor(),
            "context": self._context(),
            "pipeline": self._pipeline(),
            "shard": self._unpacking() + sharding - hidden,
        }
        return {axis: each for axis, each in seconds.items() if each}

    def _tensor(self) -> float:
        ranks = self.setup.degrees.tensor
        if ranks == 1:
            return 0.0
        link, sharers = axis_link("tensor", self.setup.degrees, self.machines)
        sums = 6 if self.setup.activation_checkpointing == "full" else 4
        whole = self.setup.micro_batch_size * self.load.block_messages
        dispatch = self.load.blocks * self.machines.tensor_overhead_seconds
        messages = 2 * link.ring(ranks, whole, sharers, self.load.blocks)
        return sums * (self.machines.tensor_slowdown * messages + dispatch)

    def _context(self) -> float:
        ranks = self.setup.degrees.context
        if ranks == 1:
            return 0.0
        link, sharers = axis_link("context", self.setup.degrees, self.machines)
        whole = self.setup.micro_batch_size * ranks * self.load.keys_and_values
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
        element, messages = COMPUTE_BYTES[self.setup.precision], self.load.units + 1
        first = link.ring(ranks, element * self.load.parameters, sharers, messages)
        again = link.ring(ranks, element * self._gathered_again, sharers, self.load.units)
        gradients = link.ring(ranks, MASTER_BYTES * self.load.parameters, sharers, messages)
        return self.machines.gather_slowdown * (first + again + gradients)

    @property
    def _gathered_again(self) -> int:
        """Elements that are gathered once more, before backward."""
        return self.load.unit_parameters if self.setup.reshard_after_forward else 0

    def _unpacking(self) -> float:
        """Return the seconds of copying gathered parameters out of messages and gradients into them, and of what gathers them, while nothing is sent."""
        if self.setup.degrees.shard == 1:
            return 0.0
        gathering = self.load.layers * self.machines.gather_overhead_seconds
        return gathering + self.machines.passes(SHARDING_PASSES, 2 * self.load.parameters + self._gathered_again)

    def exposed_gradients(self) -> float:
        """Return the seconds of the all-reduce over replicas and context ranks, once a step.

        Except for the reproducible one, it hides behind the last backward.
        """
        degrees = self.setup.degrees
        if degrees.servers:
            return self._through_servers()
        ranks = degrees.replicate * degrees.context
        if ranks == 1:
            return 0.0
        seconds = sum_seconds(self.load.parameters / degrees.shard, self.load.layers, self.setup, self.machines)
        if self.setup.reproducible or not self.machines.overlaps:
            return seconds
        return max(0.0, seconds - self.compute() * BACKWARD_OF_FORWARD / (1 + BACKWARD_OF_FORWARD))

    def _through_servers(self) -> float:
        """Return the seconds of a step's messages at the link of a parameter server, which all others wait for: every push of its shard comes
        in, and its parameters go out to every other rank. With one server and an even number of workers that is 2 x parameters x workers."""
        degrees, shard = self.setup.degrees, MASTER_BYTES * self.load.parameters / self.setup.degrees.servers
        link = self.machines.between if len(self.machines.ranks_by_node) > 1 else self.machines.within
        pushes, pulls = sum(pushed_copies(self.setup.worker_assignment)), degrees.world_size - 1
        sharers = min(degrees.servers, self.machines.slots_per_node) if len(self.machines.ranks_by_node) > 1 else 1
        return SERVER_ROUNDS * link.latency_seconds + (pushes + pulls) * shard * sharers / link.bytes_per_second
