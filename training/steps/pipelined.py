"""A step whose model lies in stages over ranks: this pipeline's micro-batches go through all at once."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from distributed.process_group import Group
from parallelism.activation_checkpoint import checkpoint_activations
from parallelism.apply import parallelize_stages
from parallelism.blocks import blocks_of
from parallelism.cut.cut_model import all_of_it
from parallelism.cut.tensor_parallel import plain
from parallelism.data_parallel import OwnPart
from parallelism.pipelines.chain import Unit, sequential_units
from parallelism.pipelines.pipelined import Pipelined, Place, pipeline
from parallelism.plan import Choices, Coordinates, Deal, Degrees
from parallelism.precision import autocast
from training.data import prefetch
from training.data.feed import Feed
from training.data.sampler import Portions
from training.entrypoint import described
from training.errors import InvalidInputError
from training.planning.estimates import stage_costs
from training.spec.job import JobSpec
from training.state import PartialStep, TrainState, training_of
from training.steps.news import Agreed, News, Requests
from training.steps.stepping import StepClock, Stepping, fetch, sums_of, to_device
from training.task import Batch, Dataset, Task


@dataclass(frozen=True)
class StepWork:
    """The micro-batches of one step. See `Work`."""

    spec: JobSpec
    state: TrainState
    feed: Feed
    step: int
    own_part: OwnPart = all_of_it

    @property
    def scale(self) -> float:
        return self.state.scale.value

    @property
    def portions(self) -> Portions:
        return Portions(training_of(self.spec).global_batch_size, self.spec.micro_batch_size)

    def rows(self, index: int) -> int:
        return self.portions.size(index)

    def batch(self, index: int) -> Batch:
        return self.own_part(fetch(self.spec, self.state, self.feed, self.step, index))

    def loss(self, model: nn.Module, index: int, batch: Batch) -> Tensor:
        loss, _ = self.state.task.loss(model, batch)
        return plain(loss) * (self.portions.weight(index) / self.spec.parallelism.context)

    def autocast(self) -> AbstractContextManager[object]:
        return autocast(self.spec.precision, self.state.device)


@dataclass(frozen=True)
class HeldOutWork:
    """Batches of held-out samples, whose loss is a vector: their sums, called `names` once one is computed. See `Work`."""

    spec: JobSpec
    state: TrainState
    held_out: Dataset
    batches: Sequence[Tensor]  # of indices
    names: list[str] = field(default_factory=list)
    scale: float = 1.0

    def rows(self, index: int) -> int:
        return len(self.batches[index])

    def batch(self, index: int) -> Batch:
        return to_device(self.held_out.batch(self.batches[index], None), self.state.device)

    def loss(self, model: nn.Module, index: int, batch: Batch) -> Tensor:
        sums = sums_of(self.spec, self.state, model, batch)
        self.names[:] = sums
        return torch.stack(list(sums.values()))

    def autocast(self) -> AbstractContextManager[object]:
        return autocast(self.spec.precision, self.state.device)


class PipelineStepper(Stepping):
    def __init__(self, spec: JobSpec, state: TrainState, group: Group, pipelined: Pipelined, coordinates: Coordinates, first: Deal) -> None:
        self.pipelined = pipelined
        super().__init__(spec, state, group, pipelined, coordinates, first)

    def accumulate(self, partial: PartialStep, clock: StepClock, requests: Requests) -> Agreed:
        """Only ranks of the last stage have losses to tell."""
        news = News(partial, self.deal.micro_batches, self.coordinates, self.state.device)
        self.pipelined.begin_step(self.deal, partial.sums)
        losses = self.pipelined.run(StepWork(self.spec, self.state, self.feed, partial.step, self.pipelined.own_part))
        self.lap_run(clock)
        partial.losses.update(losses)
        for index, loss in losses.items():
            news.add(index, loss)
        finish = news.send(self.group, requests)
        self.pipelined.finish_step()
        told = finish()
        clock.lap("communication_seconds")
        return news.read(told, self.group.world_size)

    def go_through(self, micro_batches: Sequence[int]) -> None:
        self.state.begin_step()
        self.pipelined.go_through(StepWork(self.spec, self.state, self.feed, 1, self.pipelined.own_part), micro_batches)
        self.state.rewind()

    def lap_run(self, clock: StepClock) -> None:
        """What is none of these is Python's: other."""
        spent = self.pipelined.spent
        clock.lap("other_seconds")
        clock.move(spent.fetching, "other_seconds", "data_seconds")
        clock.move(spent.forward, "other_seconds", "forward_seconds")
        clock.move(spent.backward, "other_seconds", "backward_seconds")
        clock.move(spent.waiting, "other_seconds", "communication_seconds")

    def clip(self, limit: float | None) -> Tensor:
        norm, bubble = self.pipelined.clip(limit)
        self.bubble = bubble.measured
        return norm

    def sums_of_share(self, held_out: Dataset, batches: Sequence[Tensor]) -> tuple[list[str], Mapping[int, Tensor]]:
        work = HeldOutWork(self.spec, self.state, held_out, batches)
        sums = self.pipelined.evaluate(self.coordinates.evaluation_deal(len(batches)), work)
        names: list[str] = next(filter(None, self.group.gather(work.names)))  # no rank but those of the last stage knows them
        return names, sums if self.coordinates.speaks else {}

    @property
    def whole_model(self) -> nn.Module:
        return self.pipelined.whole_model

    def upcoming(self) -> Iterator[prefetch.Place]:
        """Nothing between the first stage and the last."""
        return super().upcoming() if self.pipelined.fetches else iter(())


def staged(spec: JobSpec, state: TrainState, group: Group, degrees: Degrees, choices: Choices) -> Pipelined:
    """`state`'s model, of which this rank keeps its stages: the optimizer is to be made afterwards."""
    task, plan = state.task, spec.parallelism
    checkpoint_activations(blocks_of(task.model), choices.activation_checkpointing)
    return pipeline(
        task.model,
        units_of(task),
        StepWork(spec, state, state.feed, step=1),
        Place.of(group),
        plan.pipeline_schedule,
        state.device,
        chunks=plan.stages_on_each_rank,
        costs=stage_costs(spec),
        measured=plan.stages_by == "time",
        reproducible=spec.is_reproducible,
        prepare=functools.partial(parallelize_stages, degrees=degrees, device=state.device, group=group, shard=task.shard, choices=choices),
    )


def units_of(task: Task) -> Sequence[Unit]:
    if task.units is None:
        return sequential_units(task.model)
    units: object = task.units(task.model)
    if not isinstance(units, Sequence) or not units or not all(isinstance(unit, Unit) for unit in units):
        raise InvalidInputError(
            f"Task.units(model) returned {described(units)}; return a list of parallelism.pipelines.chain.Unit, in the order of the forward pass"
        )
    return units
