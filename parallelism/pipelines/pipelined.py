"""Pipeline parallelism: the model is partitioned into stages, and micro-batches go through them one after another.

Stages are plain modules, or sharded over the other axes (`apply.parallelize_stages`). Gradients are added up in place, and then summed
once over the replicas in one flat message; that is right under every schedule, while torch's data-parallel wrappers are wrong under
schedules that split backward. With one micro-batch this is a model split by layers. The ranks at one place along all other axes are a
pipeline, which passes on its own shard of the tensors between stages.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from paceline.distributed.process_group import Group
from paceline.parallelism.gradients import clip_by_norm, global_norm, gradients_of
from paceline.parallelism.mesh import local_tensor
from paceline.parallelism.own_gradients import GradientObserver
from paceline.parallelism.pipelines import order
from paceline.parallelism.pipelines.chain import Chain, Unit, keep_only_units, measure, move_buffers, require_complete_units, trace
from paceline.parallelism.pipelines.deferred_weight_grads import DeferredWeightGrad
from paceline.parallelism.pipelines.order import Program
from paceline.parallelism.pipelines.schedules import SCHEDULES, PipelineSchedule, ScheduleName
from paceline.parallelism.pipelines.stage import InPlaceAccumulation, Stage, TreeAccumulation
from paceline.parallelism.pipelines.stages import partition_units
from paceline.parallelism.pipelines.stand_ins import StageOutput
from paceline.parallelism.pipelines.step import LocalPipeline, PipelineStep, StepTimings, Work, inputs_of
from paceline.parallelism.plan import MicroBatchAssignment
from paceline.parallelism.tensor_context.shard_model import ModelSharding, loss_context
from paceline.parallelism.tensor_context.tensor_parallel import SequencePadding
from paceline.parallelism.wrapped import Sums


@dataclass(frozen=True)
class PipelinePosition:
    """The position of one rank in a world of pipelines."""

    group: Group  # the world's
    pipeline: tuple[int, ...]  # the world ranks of this rank's pipeline, first to last

    @classmethod
    def of(cls, group: Group) -> PipelinePosition:
        """Return the position of this rank in a group that was joined with its axis groups."""
        stages = group.axis_groups.get("pipeline")
        return cls(group, stages.ranks if stages else (group.rank,))

    @property
    def number(self) -> int:
        """The rank's index in its pipeline."""
        return self.pipeline.index(self.group.rank)

    @property
    def is_loss_reporter(self) -> bool:
        """Whether this rank reports for all ranks that have the same stages."""
        return all(axis_group.rank == 0 for axis, axis_group in self.group.axis_groups.items() if axis != "pipeline")


@dataclass(frozen=True)
class TiedParameter:
    """A parameter that is in stages of several ranks. Each rank has a copy; the first one counts in norms."""

    parameter: nn.Parameter
    holders: tuple[int, ...]  # indices in the pipeline


@dataclass(frozen=True)
class BubbleTime:
    """The bubble of a step: the share of time in which ranks are idle, mean over the ranks."""

    formula: float  # of the schedule, if all stages and passes took equally long
    measured: float  # the share of time from the step's start to the end of its exchange in which a rank computed nothing


class PipelineForward(nn.Module):
    """A forward pass through all stages, without gradients. One stage computes at a time: for sample texts, not for training.

    All ranks of the world call it together, those of one pipeline with the same tensor, of any shape.
    """

    def __init__(self, model: nn.Module, pipe: LocalPipeline, holders: Sequence[int], padding: SequencePadding | None) -> None:
        """`holders`: by stage, the index of its rank in the pipeline. `padding`: pads sequences that are sharded; None: they are whole."""
        super().__init__()
        self.model = model  # a submodule, so that parameters and evaluation mode are those of the model
        self._pipe, self._holders, self._padding = pipe, tuple(holders), padding

    @torch.no_grad()
    def forward(self, inputs: Tensor) -> Tensor:
        passed = self._padding.pad(inputs) if self._padding else inputs
        for number, holder in enumerate(self._holders):
            stage = self._pipe.stages.get(number)
            passed = self._spread(None if stage is None else stage.outputs(passed), self._pipe.ranks[holder])
        return self._padding.trim(passed) if self._padding else passed

    def _spread(self, found: Tensor | None, source: int) -> Tensor:
        """Send `found` from rank `source` to all ranks of the pipeline and return it; it is None on all other ranks."""
        group = self._pipe.group
        shape, dtype = group.all_gather_object(None if found is None else (tuple(found.shape), found.dtype))[source]
        if found is None:
            found = torch.empty(shape, dtype=dtype, device=self._pipe.device)
            group.receive(found, source)
            return found
        found = found.contiguous()
        for rank in self._pipe.ranks:
            if rank != source:
                group.send(found, rank)
        return found


class Pipelined:
    """A pipeline, seen from one rank. See `PreparedModel`.

    A step's micro-batches are given to it all at once (`run`), and it clips gradients itself, since no rank has all of them.
    """

    has_collective_forward = True
    observe_gradient: GradientObserver | None = None

    def __init__(
        self,
        model: nn.Module,
        units: Sequence[Sequence[Unit]],
        pipe: LocalPipeline,
        position: PipelinePosition,
        schedule: PipelineSchedule,
        sharding: ModelSharding,
        gradients: InPlaceAccumulation | TreeAccumulation,
    ) -> None:
        """`units`: of every stage of the pipeline. `pipe`: its boundaries are those of whole samples, of which `sharding` leaves a shard
        to each rank.
        """
        self.pipe, self._evaluation_pipe = pipe.shard(sharding.training), pipe.shard(sharding.evaluation)
        self.position, self._schedule, self.local_batch, self._gradients = position, schedule, sharding.local_batch, gradients
        self.whole_model = PipelineForward(model, pipe, [schedule.rank_of(stage) for stage in range(schedule.stages)], sharding.padding)
        self._tied = tied_parameters(units, schedule, position.number)
        self.parameters = list(nn.ModuleList(stage.outputs for stage in pipe.stages.values()).parameters())
        self._assignment: MicroBatchAssignment | None = None
        self.timings = StepTimings()  # of the last `run`
        self._started = self._seconds = 0.0

    @property
    def needs_batches(self) -> bool:
        """Whether this rank needs the micro-batches themselves: for the first stage's inputs, or the last stage's loss."""
        return not self.pipe.stages.keys().isdisjoint((0, self.pipe.last))

    def begin_step(self, assignment: MicroBatchAssignment, sums: Sums) -> None:
        """Begin a step. `assignment`: of micro-batches to pipelines.

        `sums` is ignored: nothing of an interrupted step can be kept, since other ranks had the rest of it.
        """
        for stage in self.pipe.stages.values():
            stage.begin_step(assignment)
        self._assignment = assignment

    def run(self, work: Work) -> dict[int, Tensor]:
        """Run forward and backward of this pipeline's micro-batches. Returns their losses by index on the rank of the last stage,
        elsewhere none.
        """
        assert self._assignment is not None
        self._started = time.perf_counter()
        with loss_context(self.position.group.axis_groups):
            step = self._run(self.pipe, self._assignment, work, order.programs)
        self.timings = step.timings
        return step.losses

    def run_warmup(self, work: Work, indices: Sequence[int]) -> None:
        """Run forward and backward of each of this rank's stages by itself, on made-up activations. Nothing is sent between stages.

        It adds to the gradients.
        """
        for index in indices:
            for number, stage in self.pipe.stages.items():
                batch = work.batch(index) if number in (0, self.pipe.last) else None
                inputs = (
                    inputs_of(work, index, batch)
                    if number == 0
                    else self.pipe.boundaries[number - 1].empty(work.rows(index), self.pipe.device).zero_()
                )
                with work.autocast():
                    outputs = stage.outputs(inputs.requires_grad_(self.pipe.needs_input_gradient(number)))
                    outputs = work.loss(StageOutput(outputs), index, batch) if number == self.pipe.last else outputs
                if outputs.requires_grad:
                    torch.autograd.backward(outputs, torch.zeros_like(outputs))

    @torch.no_grad()
    def evaluate(self, assignment: MicroBatchAssignment, work: Work) -> dict[int, Tensor]:
        """Run forward passes only. Returns the losses as `run` does."""
        return self._run(self._evaluation_pipe, assignment, work, order.forward_programs).losses

    def _run(
        self,
        pipe: LocalPipeline,
        assignment: MicroBatchAssignment,
        work: Work,
        programs: Callable[[PipelineSchedule], Sequence[Program]],
    ) -> PipelineStep:
        """Run a step's programs. Where stages are sharded all pipelines make as many passes as the busiest.

        A pipeline with fewer micro-batches computes its first one again as a dummy, whose loss is multiplied by zero.
        """
        short = assignment.max_per_rank - len(assignment.own) if "shard" in self.position.group.axis_groups else 0
        step = PipelineStep(pipe, [*assignment.own, *[0] * short], work, counted=len(assignment.own))
        step.run(programs(replace(self._schedule, micro_batches=len(step.indices)))[self.position.number])
        return step

    def finish_step(self) -> float:
        """Sum gradients over the ranks with the same stages, and over the copies of tied parameters. Collective.

        Returns the seconds of the step in which this rank did not compute.
        """
        self._gradients.show(self.observe_gradient)
        self._gradients.finish_step()
        for tied in self._tied:
            self._sum_copies(tied)
        self._seconds = time.perf_counter() - self._started
        return self._seconds - self.timings.computing

    @torch.no_grad()
    def _sum_copies(self, tied: TiedParameter) -> None:
        """Sum the gradients of a tied parameter's copies in the order of the ranks, so that all copies stay equal to the last bit."""
        ranks = [self.position.pipeline[holder] for holder in tied.holders]
        (gradient,) = gradients_of([tied.parameter])
        mine = local_tensor(gradient)
        copies = {rank: mine.clone() if rank == self.position.group.rank else torch.empty_like(mine) for rank in ranks}
        others = [rank for rank in ranks if rank != self.position.group.rank]
        sends = [dist.P2POp(dist.isend, copies[self.position.group.rank], rank) for rank in others]
        receives = [dist.P2POp(dist.irecv, copies[rank], rank) for rank in others]
        self.position.group.end_transfers([self.position.group.start_transfer(sends + receives, along="pipeline")])
        mine.copy_(functools.reduce(torch.add, (copies[rank] for rank in ranks)))

    def clip(self, limit: float | None) -> tuple[Tensor, BubbleTime]:
        """Clip the gradients of all stages by their norm. Returns (the norm before clipping, the bubble of the step). Collective.

        The result is equal on every rank, and on any number of replicas: of the ranks with the same stages one contributes.
        """
        position, ranks = self.position, self.position.group.world_size
        told = torch.zeros(len(position.pipeline) + 1 + ranks, dtype=torch.float64, device=self.pipe.device)
        squares, busy, seconds = torch.split(told, [len(position.pipeline), 1, ranks])
        own_square = self._own_square()
        squares[position.number] = own_square if position.is_loss_reporter else 0.0
        busy[0], seconds[position.group.rank] = self.timings.computing, self._seconds
        position.group.start_sum(told)()
        norm = torch.tensor(sum(squares.tolist()), device=self.pipe.device).sqrt()
        clip_by_norm(gradients_of(self.parameters), norm, limit)
        return norm, BubbleTime(self._schedule_bubble, measured=1 - busy.item() / (seconds.max().item() * ranks))

    def _own_square(self) -> float:
        """Return the square of the norm of the gradients that no other stage counts, so without later copies of tied parameters.

        Collective over the ranks with the same stages.
        """
        copies = {id(tied.parameter) for tied in self._tied if tied.holders[0] != self.position.number}
        own = gradients_of(parameter for parameter in self.parameters if id(parameter) not in copies)
        return global_norm(own, self.position.group.axis_groups).double().square().item()

    @property
    def _schedule_bubble(self) -> float:
        assert self._assignment is not None
        return replace(self._schedule, micro_batches=self._assignment.max_per_rank).bubble

    def sync_buffers(self) -> None:
        self._gradients.sync_buffers()


def pipeline(
    model: nn.Module,
    units: Sequence[Unit],
    work: Work,
    position: PipelinePosition,
    name: ScheduleName,
    device: torch.device,
    *,
    chunks: int = 1,
    costs: Sequence[float] | None = None,
    measured: bool = False,
    reproducible: bool = False,
    prepare: Callable[[nn.Module, Sequence[Chain]], ModelSharding] | None = None,
) -> Pipelined:
    """Partition `model` into stages and return this rank's part of the pipeline. `model` is left with this rank's stages, on `device`.

    The whole model is never on the device at once. `prepare` moves the stages there, sharded over the other axes of the world; its second
    argument are the stages that are left.

    Stages are partitioned by `costs`, one for each unit; None: by the operations that are counted in one pass over the first micro-batch
    of `work`. `measured`: by the time that this takes on the world's first rank. `chunks`: stages on each rank. Raises
    `UnsplittableModelError` or `TooFewUnitsError`.
    """
    require_complete_units(model, units)
    schedule = SCHEDULES[name](ranks=len(position.pipeline), micro_batches=1, chunks=chunks)
    move_buffers(model, device)
    inputs = inputs_of(work, 0, work.batch(0))
    boundaries, counted = trace(model, units, inputs, work.autocast())
    if measured:
        costs = position.group.all_gather_object(measure(model, units, inputs, work.autocast))[0]
    costs = counted if costs is None else costs
    ranges = partition_units(costs, schedule.stages)
    units_by_stage = [units[each.start : each.stop] for each in ranges]
    own = schedule.stages_of(position.number)
    keep_only_units(model, units, [unit for stage in own for unit in units_by_stage[stage]])
    chains = {stage: Chain(units_by_stage[stage]) for stage in own}
    sharding = prepare(model, list(chains.values())) if prepare else ModelSharding()
    if prepare is None:
        model.to(device)
    deferred = DeferredWeightGrad(chains.values() if schedule.splits_backward else ())
    gradients = TreeAccumulation(chains, position.group) if reproducible else InPlaceAccumulation(chains, position.group.axis_groups)
    stages = {number: Stage(chain, deferred, gradients.accumulators[number]) for number, chain in chains.items()}
    pipe = LocalPipeline(position.group, position.pipeline, stages, [boundaries[each.stop - 1] for each in ranges[:-1]], device)
    return Pipelined(model, units_by_stage, pipe, position, schedule, sharding, gradients)


def tied_parameters(stages: Sequence[Sequence[Unit]], schedule: PipelineSchedule, position: int) -> list[TiedParameter]:
    """Return the parameters that the rank at index `place` of the pipeline shares with other ranks, in the same order on all of them."""
    holders: dict[int, tuple[nn.Parameter, set[int]]] = {}
    for number, units in enumerate(stages):
        for parameter in (parameter for unit in units for parameter in unit.parameters):
            holders.setdefault(id(parameter), (parameter, set()))[1].add(schedule.rank_of(number))
    shared = [
        TiedParameter(parameter, tuple(sorted(ranks)))
        for parameter, ranks in holders.values()
        if len(ranks) > 1 and parameter.requires_grad
    ]
    return [tied for tied in shared if position in tied.holders]
