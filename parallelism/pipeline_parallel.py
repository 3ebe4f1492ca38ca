"""Pipeline parallelism: the model is cut into stages, and micro-batches go through them one behind the other.

Stages are plain modules: gradients are added up in place, and then once over the replicas, in one flat sum. That is right under every schedule; torch's
data-parallel wrappers are not under those that split backward. One micro-batch makes this a model split by layers.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from distributed.process_group import Group
from parallelism import pipeline_order
from parallelism.chain import Unit, keep_only, measure, require_whole, trace
from parallelism.data_parallel import Sums, average_buffers
from parallelism.pipeline_order import Program
from parallelism.pipeline_stage import Stage
from parallelism.pipeline_step import Line, PipelineStep, Work, inputs_of
from parallelism.plan import Deal
from parallelism.schedules import SCHEDULES, Schedule, ScheduleName
from parallelism.stages import cut


@dataclass(frozen=True)
class Place:
    """Of one rank in a world of pipelines."""

    group: Group  # of the world
    pipeline: tuple[int, ...]  # the world ranks of this rank's pipeline, first to last
    replicas: Group  # of the ranks with the same stages

    @property
    def number(self) -> int:
        """Along the pipeline."""
        return self.pipeline.index(self.group.rank)


@dataclass(frozen=True)
class Tied:
    """A parameter that is in stages of several ranks. Each has a copy; the first one of them counts."""

    parameter: nn.Parameter
    holders: tuple[int, ...]  # places along the pipeline


@dataclass(frozen=True)
class Bubble:
    """Shares of a step, mean over the ranks."""

    formula: float  # of the schedule, were all stages and passes equally long
    measured: float  # in which a rank computed nothing, from the step's start to the end of its exchange


class Pipelined:
    """As `Wrapped`, but that a step's micro-batches are given to it all at once (`run`), and that it clips, since no rank sees all gradients."""

    def __init__(self, units: Sequence[Sequence[Unit]], line: Line, place: Place, schedule: Schedule) -> None:
        """`units`: of every stage of the pipeline."""
        self.line, self.place, self._schedule = line, place, schedule
        self._tied = tied_parameters(units, schedule, place.number)
        self.parameters = unique([parameter for stage in line.stages.values() for parameter in stage.parameters])
        self._learning = [parameter for parameter in self.parameters if parameter.requires_grad]
        self._deal: Deal | None = None
        self._started = self._seconds = self._busy = 0.0

    def begin_step(self, deal: Deal, sums: Sums) -> None:
        """`deal`: of micro-batches to pipelines. Gradients are added up where they are: nothing of a step that breaks off can be kept."""
        for stage in self.line.stages.values():
            stage.drop()
        self._deal = deal

    def run(self, work: Work) -> dict[int, Tensor]:
        """Forward and backward of this pipeline's micro-batches. Their losses, by index, on the rank of the last stage; elsewhere none."""
        assert self._deal is not None
        self._started = time.perf_counter()
        schedule = replace(self._schedule, micro_batches=len(self._deal.own))
        step = self._run(self._deal.own, work, pipeline_order.programs(schedule))
        self._busy = step.busy
        return step.losses

    @torch.no_grad()
    def evaluate(self, indices: Sequence[int], work: Work) -> dict[int, Tensor]:
        """Forwards alone; the losses as from `run`."""
        schedule = replace(self._schedule, micro_batches=len(indices))
        return self._run(indices, work, pipeline_order.forward_programs(schedule)).losses

    def _run(self, indices: Sequence[int], work: Work, programs: Sequence[Program]) -> PipelineStep:
        step = PipelineStep(self.line, indices, work)
        step.run(programs[self.place.number])
        return step

    def finish_step(self) -> float:
        """Gradients summed over the replicas, and over the copies of tied parameters. Seconds of the step in which this rank did not compute."""
        if self.place.replicas.world_size > 1:
            sum_gradients(self._learning, self.place.replicas)
        for tied in self._tied:
            self._sum_copies(tied)
        self._seconds = time.perf_counter() - self._started
        return self._seconds - self._busy

    @torch.no_grad()
    def _sum_copies(self, tied: Tied) -> None:
        """In the order of the ranks, so that all copies stay equal to the last bit."""
        ranks = [self.place.pipeline[holder] for holder in tied.holders]
        mine = gradient_of(tied.parameter)
        copies = {rank: mine.clone() if rank == self.place.group.rank else torch.empty_like(mine) for rank in ranks}
        others = [rank for rank in ranks if rank != self.place.group.rank]
        sends = [dist.P2POp(dist.isend, copies[self.place.group.rank], rank) for rank in others]
        self.place.group.start_transfer(sends + [dist.P2POp(dist.irecv, copies[rank], rank) for rank in others])()
        mine.copy_(functools.reduce(torch.add, (copies[rank] for rank in ranks)))

    def clip(self, limit: float | None) -> tuple[Tensor, Bubble]:
        """(the norm of the gradients of all stages, before it is cut to `limit`; the bubble of the step). The same on every rank."""
        seconds = torch.zeros(self.place.group.world_size, dtype=torch.float64, device=self.line.device)
        seconds[self.place.group.rank] = self._seconds
        told = torch.cat([seconds.new_tensor([self._own_square(), self._busy]), seconds])
        square, busy, *durations = self.place.group.start_sum(told)().tolist()
        norm = torch.tensor(square, device=self.line.device).sqrt()
        if limit is not None:
            nn.utils.clip_grads_with_norm_([p for p in self.parameters if p.grad is not None], limit, norm)
        return norm, Bubble(self._schedule_bubble, measured=1 - busy / (max(durations) * len(durations)))

    def _own_square(self) -> float:
        """Of the norm of what no other rank counts: not of later copies, and replicas share their gradients out."""
        copies = {id(tied.parameter) for tied in self._tied if tied.holders[0] != self.place.number}
        own = [parameter.grad for parameter in self.parameters if parameter.grad is not None and id(parameter) not in copies]
        return nn.utils.get_total_norm(own).double().square().item() / self.place.replicas.world_size

    @property
    def _schedule_bubble(self) -> float:
        assert self._deal is not None
        return replace(self._schedule, micro_batches=self._deal.largest).bubble

    def settle_buffers(self) -> None:
        for stage in self.line.stages.values():
            for unit in stage.units:
                for module in unit.modules:
                    average_buffers(module, self.place.replicas)


def pipeline(
    model: nn.Module, units: Sequence[Unit], work: Work, place: Place, name: ScheduleName, *, chunks: int = 1, measured: bool = False
) -> Pipelined:
    """`model`, which is left with this rank's stages only, cut by what its `units` cost in one pass over the first micro-batch of `work`.

    `chunks`: stages on each rank. `measured`: the cost is time, on the world's first rank, instead of counted operations.
    """
    require_whole(model, units)
    schedule = SCHEDULES[name](ranks=len(place.pipeline), micro_batches=1, chunks=chunks)
    device = next(model.parameters()).device
    inputs = inputs_of(work, 0, work.batch(0))
    boundaries, costs = trace(model, units, inputs, work.autocast())
    if measured:
        costs = place.group.gather(measure(model, units, inputs, work.autocast))[0]
    ranges = cut(costs, schedule.stages)
    cuts = [units[each.start : each.stop] for each in ranges]
    stages = {stage: Stage(cuts[stage]) for stage in schedule.stages_of(place.number)}
    line = Line(place.group, place.pipeline, stages, [boundaries[each.stop - 1] for each in ranges[:-1]], device)
    pipelined = Pipelined(cuts, line, place, schedule)
    keep_only(model, units, [unit for stage in stages for unit in cuts[stage]])
    return pipelined


def tied_parameters(stages: Sequence[Sequence[Unit]], schedule: Schedule, place: int) -> list[Tied]:
    """Those that the rank at `place` shares with others, in the same order on all of them."""
    holders: dict[int, tuple[nn.Parameter, set[int]]] = {}
    for number, units in enumerate(stages):
        for parameter in (parameter for unit in units for parameter in unit.parameters):
            holders.setdefault(id(parameter), (parameter, set()))[1].add(schedule.rank_of(number))
    shared = [Tied(parameter, tuple(sorted(ranks))) for parameter, ranks in holders.values() if len(ranks) > 1 and parameter.requires_grad]
    return [tied for tied in shared if place in tied.holders]


def unique(parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
    return list({id(parameter): parameter for parameter in parameters}.values())


def gradient_of(parameter: nn.Parameter) -> Tensor:
    """A parameter that no micro-batch used counts as one with a zero gradient."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


@torch.no_grad()
def sum_gradients(parameters: Sequence[nn.Parameter], group: Group) -> None:
    """Over the ranks of `group`, row-major and end to end, in one sum for each data type."""
    for dtype in sorted({parameter.dtype for parameter in parameters}, key=str):
        members = [parameter for parameter in parameters if parameter.dtype == dtype]
        flat = torch.cat([gradient_of(parameter).reshape(-1) for parameter in members])
        group.sum(flat).wait()
        for parameter, piece in zip(members, torch.split(flat, [parameter.numel() for parameter in members]), strict=True):
            parameter.grad = piece.view(parameter.shape)
