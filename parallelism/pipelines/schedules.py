"""The schedules of a pipeline: which rank has which stages, and what a rank does next. Pure and torch-free.

A schedule answers two questions: on which rank a stage is, and what a rank starts when it is free. `order.py` simulates a step by that
and records the order. So any number of micro-batches works, also fewer than stages.
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
    """The schedule does not exist in this size."""


class OperationKind(Enum):
    """A kind of work that a stage does for a micro-batch."""

    FORWARD = "forward"
    BACKWARD = "backward"  # whole
    INPUT = "input"  # the part of it that the stage before waits for
    WEIGHT = "weight"  # the rest


class PipelineAction(NamedTuple):
    """One operation of one stage on one micro-batch."""

    kind: OperationKind
    stage: int
    micro_batch: int


class Pending(NamedTuple):
    """The pending work of one rank, counted once for each of its stages."""

    in_flight: int  # micro-batches between the start of their forward and the start of their backward
    weights: int  # weight gradients that could be computed and are not


@dataclass(frozen=True)
class PipelineSchedule(ABC):
    """A pipeline schedule. `ranks`: of the pipeline. `chunks`: stages on each rank. Raises `ScheduleError`."""

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
        """The number of stages."""
        return self.ranks * self.chunks

    @property
    def words(self) -> str:
        """The schedule's size as text, such as "8 micro-batches through 4 stages on 2 ranks"."""
        passing = "one micro-batch" if self.micro_batches == 1 else f"{self.micro_batches} micro-batches"
        return f"{passing} through {self.stages} stages on {self.ranks} ranks"

    @property
    def backward(self) -> OperationKind:
        """The kind of operation whose result goes to the stage before."""
        return OperationKind.INPUT if self.splits_backward else OperationKind.BACKWARD

    @property
    def kinds(self) -> tuple[OperationKind, ...]:
        """The operations of a stage on a micro-batch, in order; after the last one its activations are freed."""
        return (
            (OperationKind.FORWARD, OperationKind.INPUT, OperationKind.WEIGHT)
            if self.splits_backward
            else (OperationKind.FORWARD, OperationKind.BACKWARD)
        )

    def rank_of(self, stage: int) -> int:
        """Return the rank of a stage. Stages are assigned round-robin: stage s runs on rank s mod ranks."""
        return stage % self.ranks

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """Return the stages of a rank, ascending."""
        return tuple(stage for stage in range(self.stages) if self.rank_of(stage) == rank)

    def needs(self, action: PipelineAction) -> tuple[PipelineAction, ...]:
        """Return the actions whose results `action` needs."""
        kind, stage, micro_batch = action
        if kind is OperationKind.WEIGHT:
            return (PipelineAction(OperationKind.INPUT, stage, micro_batch),)
        if kind is OperationKind.FORWARD:
            return (PipelineAction(kind, stage - 1, micro_batch),) if stage else ()
        own = PipelineAction(OperationKind.FORWARD, stage, micro_batch)
        return (own,) if stage == self.stages - 1 else (own, PipelineAction(kind, stage + 1, micro_batch))

    def reader_of(self, action: PipelineAction) -> int | None:
        """Return the rank that needs the result of `action`, or None if it is needed on the same rank, or nowhere."""
        step = {OperationKind.FORWARD: 1, self.backward: -1}.get(action.kind)
        if step is None or not 0 <= action.stage + step < self.stages:
            return None
        reader = self.rank_of(action.stage + step)
        return reader if reader != self.rank_of(action.stage) else None

    @abstractmethod
    def choose(
        self, rank: int, due: Sequence[PipelineAction], ready: Callable[[PipelineAction], bool], pending: Pending
    ) -> PipelineAction | None:
        """Return the action that `rank` starts, or None if it waits.

        `due`: the next action of each kind and stage of the rank. `ready`: whether an action's inputs are there.
        """

    @abstractmethod
    def most_held(self, rank: int) -> int:
        """Return the most micro-batches whose activations are held on `rank` at a time, counted once for each of its stages."""

    def most_waiting(self, rank: int) -> int:
        """Return the most of them whose weight gradients are deferred or being computed, counted in the same way."""
        return 0

    def most_in_flight(self, rank: int) -> float:
        """Return the most micro-batches that may be held before the first backward begins, counted in the same way; inf: all."""
        return self.most_held(rank)

    @property
    @abstractmethod
    def idle(self) -> float:
        """How long a rank is idle in a step, in units of one stage's forward pass.

        Assumes that input and weight gradients take as long as a forward pass, that transfers take no time, and that the micro-batches
        are a multiple of the ranks.
        """

    @property
    def bubble(self) -> float:
        """`idle` as a share of the step's duration."""
        return self.idle / (3 * self.chunks * self.micro_batches + self.idle) if self.micro_batches else 0.0


class OneForwardOneBackward(PipelineSchedule):
    """1F1B: forward passes first, as far ahead as the first backward needs, then one of each in turn: Narayanan et al. 2021 (arXiv
    2104.04473), 2.2.
    """

    name: ClassVar[ScheduleName] = "1f1b"

    def most_in_flight(self, rank: int) -> float:
        return self.ranks - rank

    def choose(
        self, rank: int, due: Sequence[PipelineAction], ready: Callable[[PipelineAction], bool], pending: Pending
    ) -> PipelineAction | None:
        forward = soonest(of_kind(OperationKind.FORWARD, due), self.urgency)
        if forward and pending.in_flight < self.most_in_flight(rank) and ready(forward):
            return forward
        return soonest(filter(ready, of_kind(self.backward, due)), self.urgency)

    def urgency(self, action: PipelineAction) -> tuple[int, ...]:
        """Order actions depth first: `ranks` micro-batches through one stage, then through this rank's next stage."""
        chunk = action.stage // self.ranks
        return action.micro_batch // self.ranks, chunk if action.kind is OperationKind.FORWARD else -chunk, action.micro_batch

    def most_held(self, rank: int) -> int:
        return int(min(self.most_in_flight(rank), self.chunks * self.micro_batches))

    @property
    def idle(self) -> float:
        return 3.0 * (self.ranks - 1)


class Interleaved(OneForwardOneBackward):
    """1F1B with several stages on a rank, so that the pipeline fills faster: Narayanan et al. 2021 (arXiv 2104.04473), 2.2."""

    name: ClassVar[ScheduleName] = "interleaved_1f1b"
    fewest_chunks, most_chunks = 2, math.inf

    def most_in_flight(self, rank: int) -> float:
        return (self.chunks - 1) * self.ranks + 2 * (self.ranks - 1 - rank) + 1


class GPipe(OneForwardOneBackward):
    """All forward passes, then all backward passes: Huang et al. 2019 (arXiv 1811.06965)."""

    name: ClassVar[ScheduleName] = "gpipe"

    def most_in_flight(self, rank: int) -> float:
        return math.inf

    def needs(self, action: PipelineAction) -> tuple[PipelineAction, ...]:
        last_forward = PipelineAction(OperationKind.FORWARD, action.stage, self.micro_batches - 1)
        return super().needs(action) + ((last_forward,) if action.kind is OperationKind.BACKWARD else ())


class ZeroBubble(OneForwardOneBackward):
    """Weight gradients are deferred until there is nothing else to do, on rank r for r micro-batches: ZB-H1 of Qi et al. 2023 (arXiv
    2401.10241), 2.1.

    It works with several stages on a rank, too. The bubble is (p - 1)(F + I - W): table 2.
    """

    name: ClassVar[ScheduleName] = "zero_bubble"
    most_chunks = math.inf
    splits_backward = True

    def most_in_flight(self, rank: int) -> float:
        return (self.chunks - 1) * self.ranks + self.ranks - rank

    def choose(
        self, rank: int, due: Sequence[PipelineAction], ready: Callable[[PipelineAction], bool], pending: Pending
    ) -> PipelineAction | None:
        weight = soonest(filter(ready, of_kind(OperationKind.WEIGHT, due)), self.urgency)
        return (weight if pending.weights > rank else None) or super().choose(rank, due, ready, pending) or weight

    def most_held(self, rank: int) -> int:
        """Return the most micro-batches that are held, including those whose weight gradients are deferred."""
        return int(min(self.most_in_flight(rank) + rank, self.chunks * self.micro_batches))

    def most_waiting(self, rank: int) -> int:
        return min(rank + 1, self.chunks * self.micro_batches)

    @property
    def idle(self) -> float:
        return self.ranks - 1.0


class ZeroBubbleV(PipelineSchedule):
    """Stages go through the ranks and back, so that the first rank has the last stage too: ZB-V of Qi et al. 2023 (arXiv 2401.10241), 6.

    In the paper each rank's step begins with its own first action, and the bubble is zero; here all begin together, and the last rank's
    first action comes p - 1 forward passes later.
    """

    name: ClassVar[ScheduleName] = "zero_bubble_v"
    fewest_chunks = most_chunks = 2
    splits_backward = True

    def rank_of(self, stage: int) -> int:
        return min(stage, self.stages - 1 - stage)

    def choose(
        self, rank: int, due: Sequence[PipelineAction], ready: Callable[[PipelineAction], bool], pending: Pending
    ) -> PipelineAction | None:
        """Return the action that `rank` starts, or None if it waits.

        One place for activations is kept free for the way back, unless one is about to become free: otherwise no micro-batch might ever
        finish. As long as there are forward passes to do, input gradients come last: so there is work while they travel, where otherwise
        the ranks would wait for every message. With few micro-batches, and at the end of the step, gradients come first, since the other
        ranks wait for them.
        """
        free, back = 2 * self.ranks - pending.in_flight - pending.weights, self.is_on_the_way_back(due)
        forwards = [each for each in of_kind(OperationKind.FORWARD, due) if free > (each.stage < self.ranks and not back) and ready(each)]
        forward = max(forwards, key=lambda each: each.stage, default=None)
        gradient, weight = (
            soonest(filter(ready, of_kind(kind, due)), self.urgency) for kind in (OperationKind.INPUT, OperationKind.WEIGHT)
        )
        if self.micro_batches >= 2 * self.ranks and any(of_kind(OperationKind.FORWARD, due)):
            return weight or forward or gradient
        return gradient or forward or weight

    def is_on_the_way_back(self, due: Sequence[PipelineAction]) -> bool:
        """Whether a micro-batch has gone back through the rank's second stage, so that its backward through the first one needs no
        further place.
        """
        next_back = {action.stage < self.ranks: action.micro_batch for action in of_kind(OperationKind.INPUT, due)}
        return next_back.get(False, self.micro_batches) > next_back.get(True, self.micro_batches)

    def urgency(self, action: PipelineAction) -> tuple[int, ...]:
        return action.micro_batch, action.stage

    def most_held(self, rank: int) -> int:
        return min(2 * self.ranks, self.chunks * self.micro_batches)

    def most_waiting(self, rank: int) -> int:
        """Return an upper bound of the deferred weight gradients on `rank`: 2 (rank + 1), or all activations if there are fewer than 2
        ranks micro-batches.
        """
        return min(2 * (rank + 1), self.most_held(rank)) if self.micro_batches >= 2 * self.ranks else self.most_held(rank)

    @property
    def idle(self) -> float:
        return self.ranks - 1.0


def of_kind(kind: OperationKind, actions: Iterable[PipelineAction]) -> Iterable[PipelineAction]:
    """Return the actions of one kind."""
    return (action for action in actions if action.kind is kind)


def soonest(actions: Iterable[PipelineAction], urgency: Callable[[PipelineAction], tuple[int, ...]]) -> PipelineAction | None:
    """Return the most urgent action, or None if there is none."""
    return min(actions, key=urgency, default=None)


SCHEDULES: dict[ScheduleName, type[PipelineSchedule]] = {
    each.name: each for each in (GPipe, OneForwardOneBackward, Interleaved, ZeroBubble, ZeroBubbleV)
}
