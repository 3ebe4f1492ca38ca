"""Estimate what a rank needs in memory at the fullest moment of a step, from the sizes of a model alone. Pure: shown before anything
runs.

A training step is walked through from the loss backwards. At each layer, the activations of the layers before it are still held, the
gradients of the layers after it exist already, and the layer itself works on temporary tensors. Reported is the moment with the largest
sum, not a sum of largest parts: activations and gradients of one step are never whole at the same time. With a(l) bytes of activations
that layer l keeps, w(l) bytes that its backward works on, and g(l) elements of gradients that exist once it has run, the moment "in the
backward of l" needs

    state + other micro-batches + a(1) + ... + a(l - 1) + w(l) + 4 g(l) + what FSDP has gathered

Tests hold the estimate to what real steps allocate, within 15 %, in one thread. Not counted is what a CPU takes for convolutions alone: what
torch unfolds for fp16, and, without AVX-512, a copy of the weight gradient for each thread but the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Literal, NamedTuple

from paceline.parallelism.communication.options import CommunicationOptions
from paceline.parallelism.model_shape import COMPUTE_BYTES, MASTER_BYTES, Layer, ModelShape, Precision
from paceline.parallelism.pipelines.schedules import SCHEDULES, PipelineSchedule, ScheduleName
from paceline.parallelism.pipelines.stages import partition_layers
from paceline.parallelism.plan import LEAST_IN_UNIT, Degrees, MicroBatchAssignment, assign_evenly
from paceline.parallelism.planning.gathered import GatheredParameters, units_of
from paceline.parallelism.planning.gradient_copies import (
    BackwardPosition,
    GradientCopies,
    backward_positions_in_tree,
    in_buckets,
    in_place,
    in_tree,
    pushed_copies,
    pushed_in_tree,
    with_unsent,
)

OptimizerKind = Literal["adamw", "sgd", "nadam", "rmsprop", "adafactor"]
Checkpointing = Literal["none", "selective", "full"]
#: fp32 tensors of a parameter's size in the optimizer's state: two moments, a mean square and a momentum buffer, or one momentum buffer. A row
#: and a column of each matrix, as adafactor has them, are a few thousandths of it.
OPTIMIZER_TENSORS: dict[OptimizerKind, int] = {"adamw": 2, "sgd": 1, "nadam": 2, "rmsprop": 2, "adafactor": 0}
#: Temporary tensors of a parameter's size while an optimizer without a fused kernel updates it, one parameter after another.
UPDATE_TENSORS: dict[OptimizerKind, int] = {"adamw": 0, "sgd": 0, "nadam": 2, "rmsprop": 1, "adafactor": 1}


@dataclass(frozen=True)
class RankMemory:
    """Bytes on one rank's device at one moment of a step."""

    moment: str  # as in "in the backward of the loss"
    parameters: int
    gradients: int
    optimizer: int
    activations: int  # kept for backward, with the copies of weights that autocast makes, and temporary tensors
    buffers: int  # gradients packed for the exchange, parameters gathered from other ranks
    host: int = 0  # bytes that CPU offload keeps off the device
    save_copies: int = 0  # bytes of the host's memory for the copies that an asynchronous save writes and hashes

    @property
    def total(self) -> int:
        """The bytes on the device, without those of the host."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.buffers


@dataclass(frozen=True)
class TrainingSetup:
    """How a model is trained, as far as memory depends on it. Everything else is as the trainer does it by default."""

    degrees: Degrees
    optimizer: OptimizerKind = "adamw"
    precision: Precision = "fp32"
    micro_batch_size: int = 1
    micro_batches: int = 1  # of a global batch, over all data ranks
    reproducible: bool = False
    activation_checkpointing: Checkpointing = "none"
    reshard_after_forward: bool = True  # False: ZeRO-2, blocks stay gathered from forward to backward
    cpu_offload: bool = False
    least_in_unit: int = LEAST_IN_UNIT
    pipeline_schedule: ScheduleName = "1f1b"
    stages_per_rank: int = 1
    keeps_unsent: bool = False  # compressed gradients whose rest is added to the next step's
    communication: CommunicationOptions = field(default_factory=CommunicationOptions)

    @property
    def schedule(self) -> PipelineSchedule:
        """The pipeline schedule of the busiest pipeline."""
        return SCHEDULES[self.pipeline_schedule](self.degrees.pipeline, self.max_per_data_rank, self.stages_per_rank)

    @property
    def max_per_data_rank(self) -> int:
        """The number of micro-batches of the busiest data rank."""
        return self.degrees.max_per_data_rank(self.micro_batches)

    @property
    def assignment(self) -> MicroBatchAssignment:
        """The assignment of micro-batches to data ranks, seen from the first."""
        return self.degrees.assignment(self.micro_batches)

    @property
    def worker_assignment(self) -> MicroBatchAssignment:
        """The assignment of micro-batches to the workers beside parameter servers, which get none."""
        return assign_evenly(self.micro_batches, self.degrees.replicate)

    @property
    def gradient_axis(self) -> str:
        """The axis over which gradients are summed once a step, if they are: with a context axis its ranks take part."""
        return "replicate" if self.degrees.replicate > 1 or self.degrees.servers else "context"

    @property
    def reduces_gradients_at_end(self) -> bool:
        """Whether gradients are summed over replicas and context ranks in one flat message at the end of the step.

        That is so wherever torch's DDP is not used, because it knows neither sharded parameters nor stages.
        """
        degrees = self.degrees
        if degrees.servers:
            return False
        return not self.reproducible and degrees.replicate * degrees.context > 1 and degrees.shard * degrees.tensor * degrees.pipeline > 1

    @property
    def gradient_copies(self) -> GradientCopies:
        """The copies of gradients that a rank holds."""
        return with_unsent(self._summed_copies) if self.keeps_unsent else self._summed_copies

    @property
    def _summed_copies(self) -> GradientCopies:
        if self.degrees.servers:
            return pushed_in_tree(self.worker_assignment)
        if self.reproducible:
            return in_tree(self.assignment.pass_assignment(self.degrees.shard))
        if self.degrees.replicate * self.degrees.context > 1 and not self.reduces_gradients_at_end:
            return in_buckets(self.max_per_data_rank)
        return in_place(self.max_per_data_rank)

    @property
    def backward_positions(self) -> Collection[BackwardPosition]:
        """The micro-batches of which the backward is looked at: they differ only with the tree in a pipeline."""
        if self.reproducible and self.degrees.pipeline > 1:
            return backward_positions_in_tree(self.assignment)
        return [BackwardPosition(self.gradient_copies, self.max_per_data_rank)]


def state_bytes_per_parameter(setup: TrainingSetup) -> float:
    """Return the bytes of a rank's state for each parameter of the whole model: its share of parameters, gradients and the optimizer's tensors.

    What a rank holds besides grows with the model too, but not by its parameters alone. Offloaded state and parameter servers are not counted apart.
    """
    tensors = 1 + setup.gradient_copies.most + OPTIMIZER_TENSORS[setup.optimizer]
    degrees = setup.degrees
    return MASTER_BYTES * tensors / (degrees.shard * degrees.tensor * degrees.pipeline)


def memory(shape: ModelShape, setup: TrainingSetup) -> RankMemory:
    """Return the memory of the rank that needs most, at its fullest moment."""
    ranks = [rank.fullest() for rank in _ranks(shape, setup)]
    return max([*ranks, *server_moments(shape, setup)], key=lambda each: each.total)


def server_moments(shape: ModelShape, setup: TrainingSetup) -> list[RankMemory]:
    """Return the fullest moments of a job's parameter servers and their workers, outside of forward and backward; empty without servers.

    A server holds all parameters, and of its shard, here an equal share, the optimizer's state, every sum that workers push, and one copy
    of the total. A worker packs all that it pushes beside its pending sums.
    """
    if not setup.degrees.servers:
        return []
    size, pushed = MASTER_BYTES * shape.parameters, pushed_copies(setup.worker_assignment)
    shard = -(-size // setup.degrees.servers)
    optimizer = OPTIMIZER_TENSORS[setup.optimizer] * shard
    server = RankMemory("at the sums of a server", size, shard, optimizer, 0, sum(pushed) * shard, save_copies=shard + optimizer)
    worker = RankMemory("at the push to the servers", size, max(pushed) * size, 0, 0, max(pushed) * size, save_copies=size)
    return [server, worker]


def stages_of(shape: ModelShape, setup: TrainingSetup) -> list[tuple[Layer, ...]]:
    """Return the layers of each pipeline stage, as one rank has them before FSDP shards them."""
    degrees = setup.degrees
    stages = (shape.layers,) if degrees.pipeline == 1 else partition_layers(shape.layers, degrees.pipeline * setup.stages_per_rank)
    return [tuple(layer.shard(degrees.tensor, degrees.context) for layer in stage) for stage in stages]


def _ranks(shape: ModelShape, setup: TrainingSetup) -> Iterator[_Rank]:
    """Yield the rank at each index of the pipeline, for each backward position that makes a difference. Ranks at one index are alike.

    `most_held(p)` counts micro-batches once for each stage of rank p, so it is divided by the stages of the rank, and one is the
    micro-batch at work.
    """
    stages, schedule = stages_of(shape, setup), setup.schedule
    for place in range(setup.degrees.pipeline):
        own = schedule.stages_of(place)
        has_end = schedule.stages - 1 in own
        layers = tuple(layer if has_end else layer.with_copies() for stage in own for layer in stages[stage])
        held = schedule.most_held(place)
        counts = held, schedule.most_waiting(place), min(held, schedule.most_in_flight(place))
        others, waiting, in_flight = (max(0.0, count / len(own) - 1) for count in counts)
        unsplit = sum(len(stages[stage]) for stage in own if stage == 0 or not schedule.splits_backward)
        for copies, to_come in setup.backward_positions:
            yield _Rank(layers, setup, copies, min(others, to_come), min(waiting, to_come), min(in_flight, to_come), unsplit)


class _Moment(NamedTuple):
    """A moment of a step, with the memory that changes from moment to moment."""

    name: str
    activations: int  # bytes
    fresh: int  # elements of gradients that this micro-batch has made beside the sums of earlier ones
    gathered: int  # bytes


@dataclass(frozen=True)
class _Rank:
    """One rank with its layers, which are sharded over all axes but the shard axis, at one backward position.

    Example: three layers that keep 10, 20 and 30 bytes of a step's only micro-batch, no pipeline. In the backward of the second layer the
    rank holds the 10 bytes of the first one, what the second works on (its own 20 included), and the gradients of layers two and three.
    """

    layers: tuple[Layer, ...]
    setup: TrainingSetup
    copies: GradientCopies
    other_micro_batches: float  # beside the one at work, from forward to the end of backward; a fraction: in some stages of the rank only
    others_waiting: float  # those of them whose weight gradients are deferred
    others_in_flight: float  # the most of them before the first backward begins
    unsplit: int  # the number of first layers whose backward is one pass; that of the others is split

    def fullest(self) -> RankMemory:
        """Return the memory at the fullest moment from the end of the forward pass back to the first layer."""
        shard = self.setup.degrees.shard
        moment = max(self._moments(), key=lambda each: each.activations + MASTER_BYTES * each.fresh // shard + each.gathered)
        return self._memory(moment)

    def _moments(self) -> Iterator[_Moment]:
        """Yield the moments of a step at which memory may be fullest."""
        kept = list(accumulate(map(self._kept, self.layers), initial=self._other_micro_batches()))
        forward = self.setup.micro_batch_size * self.layers[-1].forward_working + self._cached_casts()
        fresh, whole = self._fresh(), self._gathered
        yield _Moment("at the end of the forward pass", kept[-1] + forward, 0, whole.after_forward() if whole else 0)
        for index, layer in enumerate(self.layers[: self.unsplit]):
            gathered = whole.in_backward(index) if whole else 0
            yield _Moment(f"in the backward of {layer.name}", kept[index] + self._working(layer), fresh[index], gathered)
        yield from self._split_moments(kept[-1], fresh)
        yield _Moment("at the end of backward", 0, fresh[0], whole.at_the_end() if whole else 0)
        if whole:
            yield from self._sharded_moments(whole, kept[-2], fresh[0])
        if (temporary := UPDATE_TENSORS[self.setup.optimizer]) and not self.setup.cpu_offload:
            largest = max(layer.parameters for layer in self.layers)  # a layer's matrices are not known one by one
            yield _Moment("in the update", 0, fresh[0], temporary * MASTER_BYTES * largest // self.setup.degrees.shard)
        if self.setup.reduces_gradients_at_end:
            yield _Moment("in the exchange between replicas", 0, fresh[0], MASTER_BYTES * self._elements // self.setup.degrees.shard)

    def _sharded_moments(self, whole: GatheredParameters, kept: int, fresh: int) -> Iterator[_Moment]:
        """Yield the moments that only FSDP has. `kept`: bytes kept by the model without its loss; `fresh`: gradients at the end of
        backward.
        """
        outputs = self.setup.micro_batch_size * self.layers[-1].input + self._cached_casts()
        yield _Moment("at the model's outputs", kept + outputs, 0, whole.at_outputs())
        sums = max(fresh - self.layers[0].borrowed, whole.last_sent)
        yield _Moment("in the exchange of the last gradients", 0, sums, whole.in_last_exchange(self.setup.degrees.shard))

    def _split_moments(self, held: int, fresh: Sequence[int]) -> Iterator[_Moment]:
        """Yield the moments of a split backward: input gradients of all layers, which leave deferred tensors; then, in the same order,
        weight gradients.
        """
        split = range(self.unsplit, len(self.layers))
        for index in reversed(split):
            layer = self.layers[index]
            before = held - self._kept(layer)
            yield _Moment(f"in the backward of {layer.name}", before + self._working(layer, self._deferred(layer)), 0, 0)
            held = before + self._deferred(layer)
        for index in reversed(split):
            yield _Moment(f"at the gradients of the weights of {self.layers[index].name}", held, fresh[index], 0)
            held -= self._deferred(self.layers[index])

    def _memory(self, moment: _Moment) -> RankMemory:
        """Return the bytes at one moment, by kind."""
        setup, copies = self.setup, self.copies
        elements, shard = self._elements, setup.degrees.shard
        state = {
            "parameters": MASTER_BYTES * elements // shard,
            "gradients": MASTER_BYTES * (round(copies.before * elements) + moment.fresh) // shard,
            "optimizer": 0 if setup.degrees.servers else OPTIMIZER_TENSORS[setup.optimizer] * MASTER_BYTES * elements // shard,
        }
        host = sum(state.values()) if setup.cpu_offload else 0
        save_copies = (2 * state["parameters"] + state["optimizer"]) // setup.degrees.replicate  # replicas share the writing
        if setup.cpu_offload:
            state = dict.fromkeys(state, 0)
        buffers = round(copies.packed * MASTER_BYTES * elements) // shard + moment.gathered
        return RankMemory(moment.name, **state, activations=moment.activations, buffers=buffers, host=host, save_copies=save_copies)

    @property
    def _elements(self) -> int:
        """Trainable elements of the rank's layers."""
        return sum(layer.parameters for layer in self.layers)

    def _fresh(self) -> list[int]:
        """Return for each layer, in forward order, the elements of gradients that this micro-batch has made once the layer's backward has
        run.

        - If this micro-batch's gradients stay beside existing sums, or are the first ones (`copies.after > copies.before`): those of
          this layer and of all later layers.
        - If they are added to existing sums in place: those of this layer only, until they are added.

        A borrowed matrix has a second gradient, which is added to its owner's.
        """
        own = [layer.parameters for layer in self.layers]
        fresh = list(accumulate(reversed(own)))[::-1] if self.copies.after > self.copies.before else own
        return [total + layer.borrowed for total, layer in zip(fresh, self.layers, strict=True)]

    def _other_micro_batches(self) -> int:
        """Return the bytes of activations of the other micro-batches that the rank holds meanwhile, in a pipeline.

        The largest of three states: the most that are held while none has begun its backward; the most that are held at all; and with
        those whose weight gradients are deferred.
        """
        kept, left = sum(map(self._kept, self.layers)), sum(map(self._left_for_weights, self.layers[self.unsplit :]))
        return round(max(self.others_in_flight * kept, self.other_micro_batches * kept + self.others_waiting * left))

    def _left_for_weights(self, layer: Layer) -> int:
        """Return the bytes of one micro-batch by which a layer holds more once the first half of a split backward has run: deferred less
        kept.
        """
        return self._deferred(layer) - self._kept(layer)

    def _deferred(self, layer: Layer) -> int:
        """Return the bytes of one micro-batch that a layer's split backward defers."""
        return self.setup.micro_batch_size * layer.deferred

    def _kept(self, layer: Layer) -> int:
        """Return the bytes of one micro-batch that a layer keeps from its forward to its backward."""
        samples, checkpointing = self.setup.micro_batch_size, self.setup.activation_checkpointing
        if layer.is_block and checkpointing != "none":
            return samples * (layer.checkpoint + (layer.products if checkpointing == "selective" else 0))
        return samples * layer.saved + self._casts(layer)

    def _working(self, layer: Layer, deferred: int = 0) -> int:
        """Return the bytes of one micro-batch in a layer's backward, which defers `deferred` of them. A checkpointed layer has recomputed
        its forward.
        """
        samples = self.setup.micro_batch_size
        again = samples * layer.saved + self._casts(layer)
        return max(self._kept(layer), again, deferred) + samples * layer.working + layer.reordered

    def _casts(self, layer: Layer) -> int:
        """Return the bytes of copies of a layer's weights in the precision of the forward pass."""
        if self.setup.precision == "fp32" or self._gathered:  # parameters are gathered in that precision
            return 0
        return COMPUTE_BYTES[self.setup.precision] * layer.matrices

    def _cached_casts(self) -> int:
        """Return the bytes of such copies in checkpointed blocks, which autocast keeps until the forward pass ends."""
        checkpointed = [layer for layer in self.layers if layer.is_block and self.setup.activation_checkpointing != "none"]
        return sum(map(self._casts, checkpointed))

    @cached_property
    def _gathered(self) -> GatheredParameters | None:
        """The parameters that FSDP keeps whole, or None if nothing is sharded."""
        setup = self.setup
        if setup.degrees.shard == 1:
            return None
        units = units_of(self.layers, setup.least_in_unit)
        return GatheredParameters(self.layers, units, COMPUTE_BYTES[setup.precision], setup.reshard_after_forward)
