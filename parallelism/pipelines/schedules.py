"""The schedules of a pipeline: which rank has which stages, and what a rank does next. Pure and torch-free.

A schedule answers two questions, where a stage lives and what a rank starts when it is free; `order.py` plays that out and
writes down the order. So any number of micro-batches works, fewer than stages too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Literal, NamedTuple

ScheduleName = Literal["gpipe", "1f1b", "interleaved_1f1b", "zero_bubble", "zero_bubble_v"]


class ScheduleError(ValueError):
    """A schedule that does not exist in this size."""


class Kind(Enum):
    FORWARD = "forward"
    BACKWARD = "backward"  # whole
    INPUT = "input"  # the part of it that the stage before waits for
    WEIGHT = "weight"  # the rest


class Action(NamedTuple):
    kind: Kind
    stage: int
    micro_batch: int


class Pending(NamedTuple):
    """Of one rank, counted once for each of its stages."""

    in_flight: int  # micro-batches between the start of their forward and the start of their backward
    weights: int  # weight gradients that could be computed and are not


@dataclass(frozen=True)
class Schedule(ABC):
    """`chunks`: stages on each rank."""

    ranks: int
    micro_batches: int
    chunks: int = 1

    name: ClassVar[ScheduleName]
    fewest_chunks: ClassVar[int] = 1
    most_chunks: ClassVar[float] = 1
    splits_backward: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.fewest_chunks <= self.chunks <= self.most_chunks:
            more = "" if self.most_chunks == self.fewest_chunks else " or more"
            raise ScheduleError(f"{self.name} with {self.chunks} stages on each rank does not exist; use {self.fewest_chunks}{more}")

    @property
    def stages(self) -> int:
        return self.ranks * self.chunks

    @property
    def words(self) -> str:
        """As in "8 micro-batches through 4 stages on 2 ranks"."""
        passing = "one micro-batch" if self.micro_batches == 1 else f"{self.micro_batches} micro-batches"
        return f"{passing} through {self.stages} stages on {self.ranks} ranks"

    @property
    def backward(self) -> Kind:
        """The kind of action whose result goes to the stage before."""
        return Kind.INPUT if self.splits_backward else Kind.BACKWARD

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What happens to a micro-batch in a stage, in this order; after the last one its activations are gone."""
        return (Kind.FORWARD, Kind.INPUT, Kind.WEIGHT) if self.splits_backward else (Kind.FORWARD, Kind.BACKWARD)

    def rank_of(self, stage: int) -> int:
        """Round and round."""
        return stage % self.ranks

    def stages_of(self, rank: int) -> tuple[int, ...]:
        return tuple(stage for stage in range(self.stages) if self.rank_of(stage) == rank)

    def needs(self, action: Action) -> tuple[Action, ...]:
        """What must be done before."""
        kind, stage, micro_batch = action
        if kind is Kind.WEIGHT:
            return (Action(Kind.INPUT, stage, micro_batch),)
        if kind is Kind.FORWARD:
            return (Action(kind, stage - 1, micro_batch),) if stage else ()
        own = Action(Kind.FORWARD, stage, micro_batch)
        return (own,) if stage == self.stages - 1 else (own, Action(kind, stage + 1, micro_batch))

    def reader_of(self, action: Action) -> int | None:
        """The rank that needs this action's result, if it is another one."""
        step = {Kind.FORWARD: 1, self.backward: -1}.get(action.kind)
        if step is None or not 0 <= action.stage + step < self.stages:
            return None
        reader = self.rank_of(action.stage + step)
        return reader if reader != self.rank_of(action.stage) else None

    @abstractmethod
    def choose(self, rank: int, due: Sequence[Action], ready: Callable[[Action], bool], pending: Pending) -> Action | None:
        """What `rank` starts, out of the next action of each kind and stage; None: it waits."""

    @abstractmethod
    def most_held(self, rank: int) -> int:
        """Micro-batches whose activations live at a time on `rank`, counted once for each of its stages."""

    def most_waiting(self, rank: int) -> int:
        """Those of them whose weight gradients wait, or are being computed, counted in the same way."""
        return 0

    def most_in_flight(self, rank: int) -> float:
        """Those that may be there before one goes back, counted in the same way; inf: all."""
        return self.most_held(rank)

    @property
    @abstractmethod
    def idle(self) -> float:
        """How long a rank has nothing to do in a step, in units of one stage's forward, where input and weight gradients take as long,
        transfers take no time and the micro-batches are a multiple of the ranks."""

    @property
    def bubble(self) -> float:
        """`idle` as a share of the step."""
        return self.idle / (3 * self.chunks * self.micro_batches + self.idle) if self.micro_batches else 0.0


class OneForwardOneBackward(Schedule):
    """Forwards first, as far ahead as the first backward needs, then one of each in turn: Narayanan et al. 2021 (arXiv 2104.04473), 2.2."""

    name: ClassVar[ScheduleName] = "1f1b"

    def most_in_flight(self, rank: int) -> float:
        return self.ranks - rank

    def choose(self, rank: int, due: Sequence[Action], ready: Callable[[Action], bool], pending: Pending) -> Action | None:
        forward = soonest(of_kind(Kind.FORWARD, due), self.urgency)
        if forward and pending.in_flight < self.most_in_flight(rank) and ready(forward):
            return forward
        return soonest(filter(ready, of_kind(self.backward, due)), self.urgency)

    def urgency(self, action: Action) -> tuple[int, ...]:
        """Depth first: `ranks` micro-batches through one stage, then through this rank's next one."""
        chunk = action.stage // self.ranks
        return action.micro_batch // self.ranks, chunk if action.kind is Kind.FORWARD else -chunk, action.micro_batch

    def most_held(self, rank: int) -> int:
        return int(min(self.most_in_flight(rank), self.chunks * self.micro_batches))

    @property
    def idle(self) -> float:
        return 3.0 * (self.ranks - 1)


class Interleaved(OneForwardOneBackward):
    """The same with several stages on a rank, so that the pipeline fills in shorter steps: ibid."""

    name: ClassVar[ScheduleName] = "interleaved_1f1b"
    fewest_chunks, most_chunks = 2, math.inf

    def most_in_flight(self, rank: int) -> float:
        return (self.chunks - 1) * self.ranks + 2 * (self.ranks - 1 - rank) + 1


class GPipe(OneForwardOneBackward):
    """All forwards, then all backwards: Huang et al. 2019 (arXiv 1811.06965)."""

    name: ClassVar[ScheduleName] = "gpipe"

    def most_in_flight(self, rank: int) -> float:
        return math.inf

    def needs(self, action: Action) -> tuple[Action, ...]:
        last_forward = Action(Kind.FORWARD, action.stage, self.micro_batches - 1)
        return super().needs(action) + ((last_forward,) if action.kind is Kind.BACKWARD else ())


class ZeroBubble(OneForwardOneBackward):
    """Weight gradients wait until there is nothing better to do, on rank r for r micro-batches: ZB-H1 of Qi et al. 2023 (arXiv 2401.10241), 2.1,
    also with several stages on a rank. The bubble is (p - 1)(F + I - W): table 2."""

    name: ClassVar[ScheduleName] = "zero_bubble"
    most_chunks = math.inf
    splits_backward = True

    def most_in_flight(self, rank: int) -> float:
        return (self.chunks - 1) * self.ranks + self.ranks - rank

    def choose(self, rank: int, due: Sequence[Action], ready: Callable[[Action], bool], pending: Pending) -> Action | None:
        weight = soonest(filter(ready, of_kind(Kind.WEIGHT, due)), self.urgency)
        return (weight if pending.weights > rank else None) or super().choose(rank, due, ready, pending) or weight

    def most_held(self, rank: int) -> int:
        """With those whose weight gradients wait."""
        return int(min(self.most_in_flight(rank) + rank, self.chunks * self.micro_batches))

    def most_waiting(self, rank: int) -> int:
        return min(rank + 1, self.chunks * self.micro_batches)

    @property
    def idle(self) -> float:
        return self.ranks - 1.0


class ZeroBubbleV(Schedule):
    """Stages go through the ranks and back, so that the last one is on the first rank: ZB-V, ibid., 6. There each rank's step begins with its own
    first action, and the bubble is nought; ours begin together, and the last rank's first action comes p - 1 forwards later."""

    name: ClassVar[ScheduleName] = "zero_bubble_v"
    fewest_chunks = most_chunks = 2
    splits_backward = True

    def rank_of(self, stage: int) -> int:
        return min(stage, self.stages - 1 - stage)

    def choose(self, rank: int, due: Sequence[Action], ready: Callable[[Action], bool], pending: Pending) -> Action | None:
        """A place for activations stays free for the way back, or one is about to become free: without it no micro-batch might ever come through.

        As long as forwards come, gradients of inputs are last: so there is something to do while they travel, where otherwise the ranks would wait
        for each other's every message. Of few micro-batches, and in the end, gradients are what the others wait for.
        """
        free, back = 2 * self.ranks - pending.in_flight - pending.weights, self.is_on_the_way_back(due)
        forwards = [each for each in of_kind(Kind.FORWARD, due) if free > (each.stage < self.ranks and not back) and ready(each)]
        forward = max(forwards, key=lambda each: each.stage, default=None)
        gradient, weight = (soonest(filter(ready, of_kind(kind, due)), self.urgency) for kind in (Kind.INPUT, Kind.WEIGHT))
        if self.micro_batches >= 2 * self.ranks and any(of_kind(Kind.FORWARD, due)):
            return weight or forward or gradient
        return gradient or forward or weight

    def is_on_the_way_back(self, due: Sequence[Action]) -> bool:
        """A micro-batch has been through a rank's second stage backwards, and will be through its first one without needing another place."""
        next_back = {action.stage < self.ranks: action.micro_batch for action in of_kind(Kind.INPUT, due)}
        return next_back.get(False, self.micro_batches) > next_back.get(True, self.micro_batches)

    def urgency(self, action: Action) -> tuple[int, ...]:
        return action.micro_batch, action.stage

    def most_held(self, rank: int) -> int:
        return min(2 * self.ranks, self.chunks * self.micro_batches)

    def most_waiting(self, rank: int) -> int:
        """In the end weights are last, and what waits grows by two from rank to rank; of few micro-batches all may wait."""
        return min(2 * (rank + 1), self.most_held(rank)) if self.micro_batches >= 2 * self.ranks else self.most_held(rank)

    @property
    def idle(self) -> float:
        return self.ranks - 1.0


def of_kind(kind: Kind, actions: Iterable[Action]) -> Iterable[Action]:
    return (action for action in actions if action.kind is kind)


def soonest(actions: Iterable[Action], urgency: Callable[[Action], tuple[int, ...]]) -> Action | None:
    return min(actions, key=urgency, default=None)


SCHEDULES: dict[ScheduleName, type[Schedule]] = {
    each.name: each for each in (GPipe, OneForwardOneBackward, Interleaved, ZeroBubble, ZeroBubbleV)
}
