"""A pipeline's step played out: who computes, sends and receives what, in which order. Pure and torch-free.

Transfers stand in the order in which they have happened, on both sides. So the order cannot deadlock, and NCCL, which matches transfers between two
ranks by their order alone, finds the right ones.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

from parallelism.pipelines.schedules import Action, Kind, Pending, Schedule


class Send(NamedTuple):
    """What this action has computed, to a rank of the pipeline."""

    action: Action
    rank: int


class Receive(NamedTuple):
    """What this action of another rank has computed."""

    action: Action
    rank: int


Program = tuple[Action | Send | Receive, ...]


class Times(NamedTuple):
    """What one stage takes for one micro-batch, in any unit."""

    forward: float = 1.0
    input: float = 1.0
    weight: float = 1.0

    def of(self, kind: Kind) -> float:
        both = self.input + self.weight
        return {Kind.FORWARD: self.forward, Kind.BACKWARD: both, Kind.INPUT: self.input, Kind.WEIGHT: self.weight}[kind]


@dataclass(frozen=True)
class Course:
    """How a step went."""

    programs: tuple[Program, ...]  # by rank
    duration: float
    bubble: float  # the share of it in which a rank had nothing to do, mean over the ranks
    most_held: tuple[int, ...]  # by rank: micro-batches whose activations lived at a time, counted once for each stage
    most_waiting: tuple[int, ...]  # ... those of them that had begun to go back while their weights' gradients were not done


@functools.lru_cache(maxsize=8)
def programs(schedule: Schedule) -> tuple[Program, ...]:
    """By rank."""
    return simulate(schedule, Times()).programs


@functools.lru_cache(maxsize=8)
def forward_programs(schedule: Schedule) -> tuple[Program, ...]:
    """Forwards alone, for an evaluation. By rank."""

    def is_forward(step: Action | Send | Receive) -> bool:
        return (step if isinstance(step, Action) else step.action).kind is Kind.FORWARD

    return tuple(tuple(filter(is_forward, program)) for program in programs(schedule))


def simulate(schedule: Schedule, times: Times) -> Course:
    """One step in which every stage takes `times`, and transfers no time."""
    simulation = _Simulation(schedule, times)
    simulation.start()
    while simulation.running:
        simulation.finish()
        simulation.start()
    return simulation.course()


class _Simulation:
    def __init__(self, schedule: Schedule, times: Times) -> None:
        self.schedule, self.times, self.now = schedule, times, 0.0
        self.running: dict[int, tuple[float, Action]] = {}  # by rank: until when
        self.done: set[Action] = set()
        self.programs: list[list[Action | Send | Receive]] = [[] for _ in range(schedule.ranks)]
        self.started = {(kind, stage): 0 for stage in range(schedule.stages) for kind in schedule.kinds}
        self.held, self.most_held = [0] * schedule.ranks, [0] * schedule.ranks
        self.waiting, self.most_waiting = [0] * schedule.ranks, [0] * schedule.ranks

    def start(self) -> None:
        for rank in range(self.schedule.ranks):
            if rank not in self.running and (action := self.choose(rank)):
                self.started[action.kind, action.stage] += 1
                self.hold(rank, action.kind is Kind.FORWARD, action.kind is Kind.INPUT)
                self.running[rank] = (self.now + self.times.of(action.kind), action)

    def choose(self, rank: int) -> Action | None:
        own = self.schedule.stages_of(rank)
        due = [Action(kind, stage, count) for (kind, stage), count in self.started.items() if stage in own]
        left = [action for action in due if action.micro_batch < self.schedule.micro_batches]
        first, second, *_, last = (
            sum(self.started[kind, stage] for stage in own) for kind in (*self.schedule.kinds, self.schedule.kinds[-1])
        )
        return self.schedule.choose(rank, left, self.is_ready, Pending(in_flight=first - second, weights=second - last))

    def is_ready(self, action: Action) -> bool:
        return self.done.issuperset(self.schedule.needs(action))

    def finish(self) -> None:
        """On to the next moment at which something is done. What comes in during an action stands before it: its receive begins early."""
        self.now = min(moment for moment, _ in self.running.values())
        for rank in sorted(rank for rank, (moment, _) in self.running.items() if moment == self.now):
            _, action = self.running.pop(rank)
            self.done.add(action)
            self.programs[rank].append(action)
            self.hold(rank, -(action.kind is self.schedule.kinds[-1]), -(action.kind is Kind.WEIGHT))
            if (reader := self.schedule.reader_of(action)) is not None:
                self.programs[rank].append(Send(action, reader))
                self.programs[reader].append(Receive(action, rank))

    def hold(self, rank: int, held: int, waiting: int) -> None:
        """Changes."""
        self.held[rank] += held
        self.waiting[rank] += waiting
        self.most_held[rank] = max(self.most_held[rank], self.held[rank])
        self.most_waiting[rank] = max(self.most_waiting[rank], self.waiting[rank])

    def course(self) -> Course:
        busy = sum(self.times.of(action.kind) for action in self.done)
        bubble = 1 - busy / (self.now * self.schedule.ranks) if self.now else 0.0
        return Course(tuple(map(tuple, self.programs)), self.now, bubble, tuple(self.most_held), tuple(self.most_waiting))
