"""What a rank needs in memory at its fullest moment, from a model's shape alone. Pure: shown before anything runs.

A training step is walked through from the loss backwards. At each layer the activations of the layers before it are still there, the gradients
of the layers after it are there already, and the layer itself works on temporary tensors. What is reported is the moment with the
largest sum, not a sum of largest parts: activations and gradients of one step are never whole at the same time. Tests hold it to what real
steps allocate, within 15 %; not counted is what torch unfolds for fp16 convolutions on a CPU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Literal, NamedTuple

from parallelism.pipelines.schedules import SCHEDULES, Schedule, ScheduleName
from parallelism.pipelines.stages import cut_layers
from parallelism.plan import LEAST_IN_UNIT, Deal, Degrees
from parallelism.planning.gathered import Gathered, units_of
from parallelism.planning.gradient_copies import GradientCopies, Turn, in_buckets, in_place, in_tree, turns_in_tree
from parallelism.planning.shape import COMPUTE_BYTES, MASTER_BYTES, Layer, Precision, Shape

OptimizerKind = Literal["adamw", "sgd"]
Checkpointing = Literal["none", "selective", "full"]
#: fp32 tensors of a parameter's size that the optimizer holds: two moments, or one momentum buffer.
OPTIMIZER_TENSORS: dict[OptimizerKind, int] = {"adamw": 2, "sgd": 1}


@dataclass(frozen=True)
class Memory:
    """Bytes on one rank's device at one moment of a step."""

    moment: str  # as in "in the backward of the loss"
    parameters: int
    gradients: int
    optimizer: int
    activations: int  # kept for backward, with copies of weights that autocast makes, and what is being worked on
    buffers: int  # gradients packed for the exchange, blocks gathered from other ranks
    host: int = 0  # bytes that CPU offload keeps off the device
    save_copies: int = 0  # bytes of the host's memory in which an asynchronous save keeps what this rank writes, and what it hashes

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer + self.activations + self.buffers


@dataclass(frozen=True)
class Setup:
    """How a model is trained, as far as memory depends on it. Whatever is not named is as the trainer does it by itself."""

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

    @property
    def schedule(self) -> Schedule:
        return SCHEDULES[self.pipeline_schedule](self.degrees.pipeline, self.largest_share, self.stages_per_rank)

    @property
    def largest_share(self) -> int:
        """Micro-batches of the busiest data rank."""
        return self.degrees.largest_share(self.micro_batches)

    @property
    def deal(self) -> Deal:
        return self.degrees.deal(self.micro_batches)

    @property
    def adds_up_at_the_end(self) -> bool:
        """Over replicas and context ranks, in one flat message: torch's DDP has no parts of parameters, nor stages."""
        degrees = self.degrees
        return not self.reproducible and degrees.replicate * degrees.context > 1 and degrees.shard * degrees.tensor * degrees.pipeline > 1

    @property
    def gradient_copies(self) -> GradientCopies:
        if self.reproducible:
            return in_tree(self.deal.of_passes(self.degrees.shard))
        if self.degrees.replicate * self.degrees.context > 1 and not self.adds_up_at_the_end:
            return in_buckets(self.largest_share)
        return in_place(self.largest_share)

    @property
    def turns(self) -> Collection[Turn]:
        """Only in the tree, and in a pipeline, does it matter which micro-batch is on its way back."""
        if self.reproducible and self.degrees.pipeline > 1:
            return turns_in_tree(self.deal)
        return [Turn(self.gradient_copies, self.largest_share)]


def memory(shape: Shape, setup: Setup) -> Memory:
    """The fullest moment of the fullest pipeline stage."""
    return max((rank.fullest() for rank in _ranks(shape, setup)), key=lambda each: each.total)


def stages_of(shape: Shape, setup: Setup) -> list[tuple[Layer, ...]]:
    """What a rank has of each pipeline stage, before sharding."""
    degrees = setup.degrees
    stages = (shape.layers,) if degrees.pipeline == 1 else cut_layers(shape.layers, degrees.pipeline * setup.stages_per_rank)
    return [tuple(layer.cut(degrees.tensor, degrees.context) for layer in stage) for stage in stages]


def _ranks(shape: Shape, setup: Setup) -> Iterator[_Rank]:
    """For each place along the pipeline, and each turn that makes a difference; all that stand there are alike."""
    stages, schedule = stages_of(shape, setup), setup.schedule
    for place in range(setup.degrees.pipeline):
        own = schedule.stages_of(place)
        has_end = schedule.stages - 1 in own
        layers = tuple(layer if has_end else layer.with_copies() for stage in own for layer in stages[stage])
        held = schedule.most_held(place)
        counts = held, schedule.most_waiting(place), min(held, schedule.most_in_flight(place))
        others, waiting, in_flight = (max(0.0, count / len(own) - 1) for count in counts)
        unsplit = sum(len(stages[stage]) for stage in own if stage == 0 or not schedule.splits_backward)
        for copies, to_come in setup.turns:
            yield _Rank(layers, setup, copies, min(others, to_come), min(waiting, to_come), min(in_flight, to_come), unsplit)


class _Moment(NamedTuple):
    name: str
    activations: int  # bytes
    fresh: int  # elements of gradients that this micro-batch has added to those from before it
    gathered: int  # bytes


@dataclass(frozen=True)
class _Rank:
    """One rank's part of the model, cut already but for sharding."""

    layers: tuple[Layer, ...]
    setup: Setup
    copies: GradientCopies
    other_micro_batches: float  # between forward and the end of backward while it works on one; parts: in some of its stages only
    others_waiting: float  # those of them that have gone back through it already, and whose gradients of weights wait
    others_in_flight: float  # the most of which none has gone back yet
    unsplit: int  # its first layers, whose backward is one pass; that of the others is split

    def fullest(self) -> Memory:
        """Of all moments from the end of the forward pass back to the first layer, at the micro-batch at which most gradients are held."""
        shard = self.setup.degrees.shard
        moment = max(self._moments(), key=lambda each: each.activations + MASTER_BYTES * each.fresh // shard + each.gathered)
        return self._memory(moment)

    def _moments(self) -> Iterator[_Moment]:
        kept = list(accumulate(map(self._kept, self.layers), initial=self._other_micro_batches()))
        forward = self.setup.micro_batch_size * self.layers[-1].forward_working + self._cached_casts()
        fresh, whole = self._fresh(), self._gathered
        yield _Moment("at the end of the forward pass", kept[-1] + forward, 0, whole.after_forward() if whole else 0)
        for index, layer in enumerate(self.layers[: self.unsplit]):
            gathered = whole.in_backward(index) if whole else 0
            yield _Moment(f"in the backward of {layer.name}", kept[index] + self._at_work(layer), fresh[index], gathered)
        yield from self._split_moments(kept[-1], fresh)
        yield _Moment("at the end of backward", 0, fresh[0], whole.at_the_end() if whole else 0)
        if whole:
            yield from self._sharded_moments(whole, kept[-2], fresh[0])
        if self.setup.adds_up_at_the_end:
            yield _Moment("in the exchange between replicas", 0, fresh[0], MASTER_BYTES * self._elements // self.setup.degrees.shard)

    def _sharded_moments(self, whole: Gathered, kept: int, fresh: int) -> Iterator[_Moment]:
        """`kept`: by the model without its loss; `fresh`: at the end of backward."""
        outputs = self.setup.micro_batch_size * self.layers[-1].input + self._cached_casts()
        yield _Moment("at the model's outputs", kept + outputs, 0, whole.at_outputs())
        sums = max(fresh - self.layers[0].borrowed, whole.last_sent)
        yield _Moment("in the exchange of the last gradients", 0, sums, whole.in_last_exchange(self.setup.degrees.shard))

    def _split_moments(self, held: int, fresh: Sequence[int]) -> Iterator[_Moment]:
        """First back through all of them, which leaves what is put off; then, in the same order, the products for their weights."""
        split = range(self.unsplit, len(self.layers))
        for index in reversed(split):
            layer = self.layers[index]
            before = held - self._kept(layer)
            yield _Moment(f"in the backward of {layer.name}", before + self._at_work(layer, self._put_off(layer)), 0, 0)
            held = before + self._put_off(layer)
        for index in reversed(split):
            yield _Moment(f"at the gradients of the weights of {self.layers[index].name}", held, fresh[index], 0)
            held -= self._put_off(self.layers[index])

    def _memory(self, moment: _Moment) -> Memory:
        setup, copies = self.setup, self.copies
        elements, shard = self._elements, setup.degrees.shard
        state = {
            "parameters": MASTER_BYTES * elements // shard,
            "gradients": MASTER_BYTES * (round(copies.before * elements) + moment.fresh) // shard,
            "optimizer": OPTIMIZER_TENSORS[setup.optimizer] * MASTER_BYTES * elements // shard,
        }
        host = sum(state.values()) if setup.cpu_offload else 0
        save_copies = (2 * state["parameters"] + state["optimizer"]) // setup.degrees.replicate  # replicas share the work
        if setup.cpu_offload:
            state = dict.fromkeys(state, 0)
        buffers = round(copies.packed * MASTER_BYTES * elements) // shard + moment.gathered
        return Memory(moment.name, **state, activations=moment.activations, buffers=buffers, host=host, save_copies=save_copies)

    @property
    def _elements(self) -> int:
        """Trainable ones."""
        return sum(layer.parameters for layer in self.layers)

    def _fresh(self) -> list[int]:
        """By layer, elements of gradients once its backward has run: of all layers from there on where they are new, else its own, until they
        are added to those of the micro-batches before. A borrowed matrix gets a second gradient, which is added to its owner's."""
        own = [layer.parameters for layer in self.layers]
        fresh = list(accumulate(reversed(own)))[::-1] if self.copies.after > self.copies.before else own
        return [total + layer.borrowed for total, layer in zip(fresh, self.layers, strict=True)]

    def _other_micro_batches(self) -> int:
        kept, left = sum(map(self._kept, self.layers)), sum(map(self._left_for_weights, self.layers[self.unsplit :]))
        return round(max(self.others_in_flight * kept, self.other_micro_batches * kept + self.others_waiting * left))

    def _left_for_weights(self, layer: Layer) -> int:
        """Bytes of one micro-batch that more are held once a split backward has gone through a layer: what is put off, without what it kept."""
        return self._put_off(layer) - self._kept(layer)

    def _put_off(self, layer: Layer) -> int:
        return self.setup.micro_batch_size * layer.put_off

    def _kept(self, layer: Layer) -> int:
        """Bytes of one micro-batch from a layer's forward to its backward."""
        samples, checkpointing = self.setup.micro_batch_size, self.setup.activation_checkpointing
        if layer.is_block and checkpointing != "none":
            return samples * (layer.checkpoint + (layer.products if checkpointing == "selective" else 0))
        return samples * layer.saved + self._casts(layer)

    def _at_work(self, layer: Layer, put_off: int = 0) -> int:
        """Bytes of one micro-batch in a layer's backward, which puts off so many; a checkpointed one has computed its forward again."""
        samples = self.setup.micro_batch_size
        again = samples * layer.saved + self._casts(layer)
        return max(self._kept(layer), again, put_off) + samples * layer.working + layer.reordered

    def _casts(self, layer: Layer) -> int:
        """Copies of its weights in the forward pass's precision."""
        if self.setup.precision == "fp32" or self._gathered:  # gathered in that precision already
            return 0
        return COMPUTE_BYTES[self.setup.precision] * layer.matrices

    def _cached_casts(self) -> int:
        """Autocast keeps the copies until the forward pass ends, of checkpointed blocks too."""
        checkpointed = [layer for layer in self.layers if layer.is_block and self.setup.activation_checkpointing != "none"]
        return sum(map(self._casts, checkpointed))

    @cached_property
    def _gathered(self) -> Gathered | None:
        """None: nothing is sharded, so that parameters are whole as they are."""
        setup = self.setup
        if setup.degrees.shard == 1:
            return None
        units = units_of(self.layers, setup.least_in_unit)
        return Gathered(self.layers, units, COMPUTE_BYTES[setup.precision], setup.reshard_after_forward)
