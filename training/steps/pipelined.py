"""A step whose model lies in stages over ranks: this pipeline's micro-batches go through all at once."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from paceline.distributed.process_group import Group
from paceline.parallelism.activation_checkpoint import checkpoint_activations
from paceline.parallelism.apply import parallelize_stages
from paceline.parallelism.blocks import blocks_of
from paceline.parallelism.options import ParallelizeOptions
from paceline.parallelism.pipelines.chain import Unit, sequential_units
from paceline.parallelism.pipelines.pipelined import Pipelined, PipelinePosition, pipeline
from paceline.parallelism.plan import Coordinates, Degrees, MicroBatchAssignment
from paceline.parallelism.precision import autocast
from paceline.parallelism.tensor_context.shard_model import whole_batch
from paceline.parallelism.tensor_context.tensor_parallel import full_tensor
from paceline.parallelism.wrapped import LocalBatch
from paceline.training.data import prefetch
from paceline.training.data.feed import Feed
from paceline.training.data.sampler import BatchSplit
from paceline.training.entrypoint import described
from paceline.training.errors import InvalidInputError
from paceline.training.planning.estimates import stage_costs
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import PartialStep, TrainState
from paceline.training.steps.step_sync import BoundaryRequests, StepConsensus, StepSync
from paceline.training.steps.stepping import StepClock, StepRunner, fetch, sums_of, to_device
from paceline.training.task import Batch, Dataset, Task


@dataclass(frozen=True)
class StepWork:
    """The micro-batches of one step. See `Work`."""

    spec: JobSpec
    state: TrainState
    feed: Feed
    step: int
    local_batch: LocalBatch = whole_batch

    @property
    def scale(self) -> float:
        return self.state.scale.value

    @property
    def portions(self) -> BatchSplit:
        return BatchSplit(derived.training_of(self.spec).global_batch_size, derived.micro_batch_size(self.spec))

    def rows(self, index: int) -> int:
        return self.portions.size(index)

    def batch(self, index: int) -> Batch:
        return self.local_batch(fetch(self.spec, self.state, self.feed, self.step, index))

    def loss(self, model: nn.Module, index: int, batch: Batch) -> Tensor:
        loss, _ = self.state.task.loss(model, batch)
        return full_tensor(loss) * (self.portions.weight(index) / self.spec.parallelism.context)

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


class PipelineStepRunner(StepRunner):
    """Runs the steps of a model whose stages lie on several ranks."""

    def __init__(
        self, spec: JobSpec, state: TrainState, group: Group, pipelined: Pipelined, coordinates: Coordinates, first: MicroBatchAssignment
    ) -> None:
        self.pipelined = pipelined
        super().__init__(spec, state, group, pipelined, coordinates, first)

    def accumulate(self, partial: PartialStep, clock: StepClock, requests: BoundaryRequests) -> StepConsensus:
        """Run this pipeline's micro-batches. Only ranks of the last stage report losses."""
        sync = StepSync(partial, self.assignment.micro_batches, self.coordinates, self.state.device)
        self.group.exposure.drop()
        self.pipelined.begin_step(self.assignment, partial.sums)
        losses = self.pipelined.run(StepWork(self.spec, self.state, self.feed, partial.step, self.pipelined.local_batch))
        self.split_time(clock)
        partial.losses.update(losses)
        for index, loss in losses.items():
            sync.add(index, loss)
        finish = sync.send(self.group, requests)
        self.pipelined.finish_step()
        sums = finish()
        clock.lap_values(self.group.exposure)
        return sync.read(sums, self.group.world_size)

    def run_warmup(self, micro_batches: Sequence[int]) -> None:
        self.state.begin_step()
        self.pipelined.run_warmup(StepWork(self.spec, self.state, self.feed, 1, self.pipelined.local_batch), micro_batches)
        self.state.rewind()

    def split_time(self, clock: StepClock) -> None:
        """Split the time of a run into the parts of a step; the remainder, Python's own time, is `other`."""
        timings = self.pipelined.timings
        clock.lap("other_seconds")
        clock.move(timings.fetching, "other_seconds", "data_seconds")
        clock.move(timings.forward, "other_seconds", "forward_seconds")
        clock.move(timings.backward, "other_seconds", "backward_seconds")
        clock.move(timings.waiting, "other_seconds", "communication_seconds")

    def clip(self, limit: float | None) -> Tensor:
        norm, bubble = self.pipelined.clip(limit)
        self.bubble = bubble.measured
        return norm

    def evaluate_assigned(self, held_out: Dataset, batches: Sequence[Tensor]) -> tuple[list[str], Mapping[int, Tensor]]:
        work = HeldOutWork(self.spec, self.state, held_out, batches)
        sums = self.pipelined.evaluate(self.coordinates.evaluation_assignment(len(batches)), work)
        names: list[str] = next(filter(None, self.group.all_gather_object(work.names)))  # no rank but those of the last stage knows them
        return names, sums if self.coordinates.is_loss_reporter else {}

    @property
    def whole_model(self) -> nn.Module:
        return self.pipelined.whole_model

    def upcoming(self) -> Iterator[prefetch.BatchPosition]:
        """Return the micro-batches to fetch: none on ranks between the first stage and the last."""
        return super().upcoming() if self.pipelined.needs_batches else iter(())


def staged(spec: JobSpec, state: TrainState, group: Group, degrees: Degrees, choices: ParallelizeOptions) -> Pipelined:
    """Split `state`'s model into stages, of which this rank keeps its own. The optimizer is to be made afterwards."""
    task, plan = state.task, spec.parallelism
    checkpoint_activations(blocks_of(task.model), choices.activation_checkpointing)
    return pipeline(
        task.model,
        units_of(task),
        StepWork(spec, state, state.feed, step=1),
        PipelinePosition.of(group),
        plan.pipeline_schedule,
        state.device,
        chunks=plan.stages_on_each_rank,
        costs=stage_costs(spec),
        measured=plan.stages_by == "time",
        reproducible=derived.is_reproducible(spec),
        prepare=functools.partial(parallelize_stages, degrees=degrees, device=state.device, group=group, shard=task.shard, choices=choices),
    )


def units_of(task: Task) -> Sequence[Unit]:
    if task.units is None:
        return sequential_units(task.model)
    units: object = task.units(task.model)
    if not isinstance(units, Sequence) or not units or not all(isinstance(unit, Unit) for unit in units):
        raise InvalidInputError(
            f"Task.units(model) returned {described(units)}; return a list of paceline.Unit, in the order of the forward pass"
        )
    return units
