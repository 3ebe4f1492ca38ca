"""Pipeline parallelism: the model is cut into stages, and micro-batches go through them one behind the other.

Stages are plain modules, or in parts over the other axes (`apply.parallelize_stages`): gradients are added up in place, and then once over the replicas,
in one flat sum. That is right under every schedule; torch's data-parallel wrappers are not under those that split backward. One micro-batch makes
this a model split by layers. Each line of ranks along the pipeline passes on its own part of what goes from stage to stage.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from distributed.process_group import Group
from parallelism.cut.cut_model import Cutting, around_loss
from parallelism.data_parallel import Sums
from parallelism.gradients import cut_down, global_norm, gradients_of
from parallelism.mesh import local_part
from parallelism.pipelines import order
from parallelism.pipelines.chain import Chain, Unit, keep_only, measure, require_whole, settle_buffers_on, trace
from parallelism.pipelines.order import Program
from parallelism.pipelines.put_off import PutOff
from parallelism.pipelines.relay import Relay
from parallelism.pipelines.schedules import SCHEDULES, Schedule, ScheduleName
from parallelism.pipelines.stage import Stage
from parallelism.pipelines.stages import cut
from parallelism.pipelines.step import Pipe, PipelineStep, Spent
from parallelism.pipelines.tally import InPlace, InTree
from parallelism.pipelines.work import Exit, Work, inputs_of
from parallelism.plan import Deal


@dataclass(frozen=True)
class Place:
    """Of one rank in a world of pipelines."""

    group: Group  # of the world
    pipeline: tuple[int, ...]  # the world ranks of this rank's pipeline, first to last

    @classmethod
    def of(cls, group: Group) -> Place:
        """In a group that was joined with the lines of its mesh."""
        stages = group.lines.get("pipeline")
        return cls(group, stages.ranks if stages else (group.rank,))

    @property
    def number(self) -> int:
        """Along the pipeline."""
        return self.pipeline.index(self.group.rank)

    @property
    def speaks(self) -> bool:
        """One of those with the same stages."""
        return all(line.rank == 0 for axis, line in self.group.lines.items() if axis != "pipeline")


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
    """As `Prepared`: a step's micro-batches are given to it all at once (`run`), and it clips, since no rank sees all gradients."""

    in_lockstep = True

    def __init__(
        self,
        model: nn.Module,
        units: Sequence[Sequence[Unit]],
        pipe: Pipe,
        place: Place,
        schedule: Schedule,
        cutting: Cutting,
        gradients: InPlace | InTree,
    ) -> None:
        """`units`: of every stage of the pipeline. `pipe`: its boundaries are those of whole samples, of which `cutting` leaves a part to each rank."""
        self.pipe, self._evaluation_pipe = pipe.part(cutting.training), pipe.part(cutting.evaluation)
        self.place, self._schedule, self.own_part, self._gradients = place, schedule, cutting.own_part, gradients
        self.whole_model = Relay(model, pipe, [schedule.rank_of(stage) for stage in range(schedule.stages)], cutting.even)
        self._tied = tied_parameters(units, schedule, place.number)
        self.parameters = list(nn.ModuleList(stage.outputs for stage in pipe.stages.values()).parameters())
        self._deal: Deal | None = None
        self.spent = Spent()  # by the newest `run`
        self._started = self._seconds = 0.0

    @property
    def fetches(self) -> bool:
        """Whether this rank needs the micro-batches themselves: for the first stage's inputs, or the last one's loss."""
        return not self.pipe.stages.keys().isdisjoint((0, self.pipe.last))

    def begin_step(self, deal: Deal, sums: Sums) -> None:
        """`deal`: of micro-batches to pipelines. Nothing of a step that breaks off can be kept: other ranks had the rest of it."""
        for stage in self.pipe.stages.values():
            stage.begin_step(deal)
        self._deal = deal

    def run(self, work: Work) -> dict[int, Tensor]:
        """Forward and backward of this pipeline's micro-batches. Their losses, by index, on the rank of the last stage; elsewhere none."""
        assert self._deal is not None
        self._started = time.perf_counter()
        with around_loss(self.place.group.lines):
            step = self._run(self.pipe, self._deal, work, order.programs)
        self.spent = step.spent
        return step.losses

    def go_through(self, work: Work, indices: Sequence[int]) -> None:
        """Forth and back through each of this rank's stages by itself, of made-up activations: nothing goes from stage to stage. Adds to gradients."""
        for index in indices:
            for number, stage in self.pipe.stages.items():
                batch = work.batch(index) if number in (0, self.pipe.last) else None
                inputs = (
                    inputs_of(work, index, batch)
                    if number == 0
                    else self.pipe.boundaries[number - 1].empty(work.rows(index), self.pipe.device).zero_()
                )
                with work.autocast():
                    outputs = stage.outputs(inputs.requires_grad_(self.pipe.learns_before(number)))
                    outputs = work.loss(Exit(outputs), index, batch) if number == self.pipe.last else outputs
                if outputs.requires_grad:
                    torch.autograd.backward(outputs, torch.zeros_like(outputs))

    @torch.no_grad()
    def evaluate(self, deal: Deal, work: Work) -> dict[int, Tensor]:
        """Forwards alone; the losses as from `run`."""
        return self._run(self._evaluation_pipe, deal, work, order.forward_programs).losses

    def _run(self, pipe: Pipe, deal: Deal, work: Work, programs: Callable[[Schedule], Sequence[Program]]) -> PipelineStep:
        """Where stages are sharded all ranks make as many passes as the busiest: who has fewer micro-batches computes the first one for nothing."""
        short = deal.largest - len(deal.own) if "shard" in self.place.group.lines else 0
        step = PipelineStep(pipe, [*deal.own, *[0] * short], work, counted=len(deal.own))
        step.run(programs(replace(self._schedule, micro_batches=len(step.indices)))[self.place.number])
        return step

    def finish_step(self) -> float:
        """Gradients summed over the ranks with the same stages, and over the copies of tied parameters. Seconds of the step in which this rank did
        not compute."""
        self._gradients.finish_step()
        for tied in self._tied:
            self._sum_copies(tied)
        self._seconds = time.perf_counter() - self._started
        return self._seconds - self.spent.computing

    @torch.no_grad()
    def _sum_copies(self, tied: Tied) -> None:
        """In the order of the ranks, so that all copies stay equal to the last bit."""
        ranks = [self.place.pipeline[holder] for holder in tied.holders]
        (gradient,) = gradients_of([tied.parameter])
        mine = local_part(gradient)
        copies = {rank: mine.clone() if rank == self.place.group.rank else torch.empty_like(mine) for rank in ranks}
        others = [rank for rank in ranks if rank != self.place.group.rank]
        sends = [dist.P2POp(dist.isend, copies[self.place.group.rank], rank) for rank in others]
        receives = [dist.P2POp(dist.irecv, copies[rank], rank) for rank in others]
        self.place.group.end_transfers([self.place.group.start_transfer(sends + receives, along="pipeline")])
        mine.copy_(functools.reduce(torch.add, (copies[rank] for rank in ranks)))

    def clip(self, limit: float | None) -> tuple[Tensor, Bubble]:
        """(the norm of the gradients of all stages, before it is cut to `limit`; the bubble of the step). The same on every rank, and on any number
        of replicas: of those with the same stages one speaks."""
        place, ranks = self.place, self.place.group.world_size
        told = torch.zeros(len(place.pipeline) + 1 + ranks, dtype=torch.float64, device=self.pipe.device)
        squares, busy, seconds = torch.split(told, [len(place.pipeline), 1, ranks])
        own_square = self._own_square()
        squares[place.number] = own_square if place.speaks else 0.0
        busy[0], seconds[place.group.rank] = self.spent.computing, self._seconds
        place.group.start_sum(told)()
        norm = torch.tensor(sum(squares.tolist()), device=self.pipe.device).sqrt()
        cut_down(gradients_of(self.parameters), norm, limit)
        return norm, Bubble(self._schedule_bubble, measured=1 - busy.item() / (seconds.max().item() * ranks))

    def _own_square(self) -> float:
        """Of the norm of what no other stage counts: not of later copies. Ranks with the same stages all know it, and take part in finding it."""
        copies = {id(tied.parameter) for tied in self._tied if tied.holders[0] != self.place.number}
        own = gradients_of(parameter for parameter in self.parameters if id(parameter) not in copies)
        return global_norm(own, self.place.group.lines).double().square().item()

    @property
    def _schedule_bubble(self) -> float:
        assert self._deal is not None
        return replace(self._schedule, micro_batches=self._deal.largest).bubble

    def settle_buffers(self) -> None:
        self._gradients.settle_buffers()


def pipeline(
    model: nn.Module,
    units: Sequence[Unit],
    work: Work,
    place: Place,
    name: ScheduleName,
    device: torch.device,
    *,
    chunks: int = 1,
    costs: Sequence[float] | None = None,
    measured: bool = False,
    reproducible: bool = False,
    prepare: Callable[[nn.Module, Sequence[Chain]], Cutting] | None = None,
) -> Pipelined:
    """`model`, which is left with this rank's stages only, on `device`; all of it is never there at once. `prepare` puts it there, in parts over
    the other axes of the world; its second argument: the stages that are left of it.

    It is cut by `costs`, one for each unit; None: by the operations that are counted in one pass over the first micro-batch of `work`.
    `measured`: by the time that this takes on the world's first rank. `chunks`: stages on each rank.
    """
    require_whole(model, units)
    schedule = SCHEDULES[name](ranks=len(place.pipeline), micro_batches=1, chunks=chunks)
    settle_buffers_on(model, device)
    inputs = inputs_of(work, 0, work.batch(0))
    boundaries, counted = trace(model, units, inputs, work.autocast())
    if measured:
        costs = place.group.gather(measure(model, units, inputs, work.autocast))[0]
    costs = counted if costs is None else costs
    ranges = cut(costs, schedule.stages)
    cuts = [units[each.start : each.stop] for each in ranges]
    own = schedule.stages_of(place.number)
    keep_only(model, units, [unit for stage in own for unit in cuts[stage]])
    chains = {stage: Chain(cuts[stage]) for stage in own}
    cutting = prepare(model, list(chains.values())) if prepare else Cutting()
    if prepare is None:
        model.to(device)
    put_off = PutOff(chains.values() if schedule.splits_backward else ())
    gradients = InTree(chains, place.group) if reproducible else InPlace(chains, place.group.lines)
    stages = {number: Stage(chain, put_off, gradients.tallies[number]) for number, chain in chains.items()}
    pipe = Pipe(place.group, place.pipeline, stages, [boundaries[each.stop - 1] for each in ranges[:-1]], device)
    return Pipelined(model, cuts, pipe, place, schedule, cutting, gradients)


def tied_parameters(stages: Sequence[Sequence[Unit]], schedule: Schedule, place: int) -> list[Tied]:
    """Those that the rank at `place` shares with others, in the same order on all of them."""
    holders: dict[int, tuple[nn.Parameter, set[int]]] = {}
    for number, units in enumerate(stages):
        for parameter in (parameter for unit in units for parameter in unit.parameters):
            holders.setdefault(id(parameter), (parameter, set()))[1].add(schedule.rank_of(number))
    shared = [Tied(parameter, tuple(sorted(ranks))) for parameter, ranks in holders.values() if len(ranks) > 1 and parameter.requires_grad]
    return [tied for tied in shared if place in tied.holders]
