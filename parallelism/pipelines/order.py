"""Simulate a step of a pipeline schedule, to get each rank's program: what it computes, sends and receives, in which order. Pure and
torch-free.

Transfers stand in both programs in the order in which they happened in the simulation. So no order can deadlock, and NCCL, which matches
transfers between two ranks by their order alone, pairs the right ones.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

from paceline.parallelism.pipelines.schedules import OperationKind, Pending, PipelineAction, PipelineSchedule


class Send(NamedTuple):
    """Send the result of `action`, which this rank has computed, to a rank of the pipeline."""

    action: PipelineAction
    rank: int


class Receive(NamedTuple):
    """Receive the result of `action` from the rank of the pipeline that computes it."""

    action: PipelineAction
    rank: int


Program = tuple[PipelineAction | Send | Receive, ...]


class Times(NamedTuple):
    """How long one stage takes for one micro-batch, in any unit of time."""

    forward: float = 1.0
    input: float = 1.0
    weight: float = 1.0

    def of(self, kind: OperationKind) -> float:
        """Return the time of one kind of operation."""
        both = self.input + self.weight
        return {
            OperationKind.FORWARD: self.forward,
            OperationKind.BACKWARD: both,
            OperationKind.INPUT: self.input,
            OperationKind.WEIGHT: self.weight,
        }[kind]


@dataclass(frozen=True)
class ScheduleSimulation:
    """The result of simulating one step of a schedule."""

    programs: tuple[Program, ...]  # by rank
    duration: float
    bubble: float  # the share of the duration in which a rank was idle, mean over the ranks
    most_held: tuple[int, ...]  # by rank: the most micro-batches whose activations are held at a time, counted once for each stage
    most_waiting: tuple[int, ...]  # ... the most of them whose backward has begun and whose weight gradients are not done


@functools.lru_cache(maxsize=8)
def programs(schedule: PipelineSchedule) -> tuple[Program, ...]:
    """Return the program of each rank."""
    return simulate(schedule, Times()).programs


@functools.lru_cache(maxsize=8)
def forward_programs(schedule: PipelineSchedule) -> tuple[Program, ...]:
    """Return the program of each rank with forward passes only, for an evaluation."""

    def is_forward(step: PipelineAction | Send | Receive) -> bool:
        return (step if isinstance(step, PipelineAction) else step.action).kind is OperationKind.FORWARD

    return tuple(tuple(filter(is_forward, program)) for program in programs(schedule))


def simulate(schedule: PipelineSchedule, times: Times) -> ScheduleSimulation:
    """Simulate one step in which every stage takes `times`, and transfers take no time."""
    simulation = _Simulation(schedule, times)
    simulation.start()
    while simulation.running:
        simulation.finish()
        simulation.start()
    return simulation.result()


class _Simulation:
    def __init__(self, schedule: PipelineSchedule, times: Times) -> None:
        self.schedule, self.times, self.now = schedule, times, 0.0
        self.running: dict[int, tuple[float, PipelineAction]] = {}  # by rank: when its action ends, and the action
        self.done: set[PipelineAction] = set()
        self.programs: list[list[PipelineAction | Send | Receive]] = [[] for _ in range(schedule.ranks)]
        self.started = {(kind, stage): 0 for stage in range(schedule.stages) for kind in schedule.kinds}
        self.held, self.most_held = [0] * schedule.ranks, [0] * schedule.ranks
        self.waiting, self.most_waiting = [0] * schedule.ranks, [0] * schedule.ranks

    def start(self) -> None:
        for rank in range(self.schedule.ranks):
            if rank not in self.running and (action := self.choose(rank)):
                self.started[action.kind, action.stage] += 1
                self.track(rank, action.kind is OperationKind.FORWARD, action.kind is OperationKind.INPUT)
                self.running[rank] = (self.now + self.times.of(action.kind), action)

    def choose(self, rank: int) -> PipelineAction | None:
        own = self.schedule.stages_of(rank)
        due = [PipelineAction(kind, stage, count) for (kind, stage), count in self.started.items() if stage in own]
        left = [action for action in due if action.micro_batch < self.schedule.micro_batches]
        first, second, *_, last = (
            sum(self.started[kind, stage] for stage in own) for kind in (*self.schedule.kinds, self.schedule.kinds[-1])
        )
        return self.schedule.choose(rank, left, self.is_ready, Pending(in_flight=first - second, weights=second - last))

    def is_ready(self, action: PipelineAction) -> bool:
        return self.done.issuperset(self.schedule.needs(action))

    def finish(self) -> None:
        """Advance to the next moment at which an action ends.

        A receive is put into the program before the action during which the tensor arrives: it is posted early.
        """
        self.now = min(moment for moment, _ in self.running.values())
        for rank in sorted(rank for rank, (moment, _) in self.running.items() if moment == self.now):
            _, action = self.running.pop(rank)
            self.done.add(action)
            self.programs[rank].append(action)
            self.track(rank, -(action.kind is self.schedule.kinds[-1]), -(action.kind is OperationKind.WEIGHT))
            if (reader := self.schedule.reader_of(action)) is not None:
                self.programs[rank].append(Send(action, reader))
                self.programs[reader].append(Receive(action, rank))

    def track(self, rank: int, held: int, waiting: int) -> None:
        """Add `held` activations and `waiting` weight gradients to the counts of `rank`, and track the maxima."""
        self.held[rank] += held
        self.waiting[rank] += waiting
        self.most_held[rank] = max(self.most_held[rank], self.held[rank])
        self.most_waiting[rank] = max(self.most_waiting[rank], self.waiting[rank])

    def result(self) -> ScheduleSimulation:
        busy = sum(self.times.of(action.kind) for action in self.done)
        bubble = 1 - busy / (self.now * self.schedule.ranks) if self.now else 0.0
        return ScheduleSimulation(tuple(map(tuple, self.programs)), self.now, bubble, tuple(self.most_held), tuple(self.most_waiting))
