"""One step of one rank's pipeline program: stages computed, activations and gradients sent to and received from the neighbours.

With each activation goes the state of the random numbers, so that the next stage goes on drawing where this one stopped: dropout in a
pipeline is the one that a single process draws.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from distributed.process_group import Group, Transfer
from parallelism.cut.sequence import Cut
from parallelism.pipelines.chain import Boundary
from parallelism.pipelines.order import Program, Receive, Send
from parallelism.pipelines.schedules import Action, Kind
from parallelism.pipelines.stage import Stage
from parallelism.pipelines.work import Exit, Work, inputs_of
from parallelism.precision import scaled

#: Sends that may be under way: what is sent cannot be freed before it has gone.
MOST_SENDS = 8


class BoundaryMismatchError(RuntimeError):
    """A stage gives something else than the next one waits for."""


@dataclass(frozen=True)
class Pipe:
    """What a rank knows of its pipeline."""

    group: Group  # of the world
    ranks: tuple[int, ...]  # the world ranks of the pipeline
    stages: Mapping[int, Stage]  # this rank's own
    boundaries: Sequence[Boundary]  # between each stage and the next
    device: torch.device

    @property
    def last(self) -> int:
        return len(self.boundaries)

    def part(self, cuts: Sequence[Cut]) -> Pipe:
        """Of ranks that have a part of what goes through it."""
        return replace(self, boundaries=[boundary.part(cuts) for boundary in self.boundaries])

    def carries(self, action: Action) -> bool:
        """Whether what it has computed goes to another stage: no gradient goes to where nothing learns."""
        return action.kind is Kind.FORWARD or self.learns_before(action.stage)

    def learns_before(self, stage: int) -> bool:
        return stage > 0 and self.boundaries[stage - 1].has_gradient

    def boundary(self, action: Action) -> Boundary:
        return self.boundaries[action.stage if action.kind is Kind.FORWARD else action.stage - 1]

    def tag(self, action: Action) -> int:
        """Three for each action: of activation, random state and gradient."""
        return 3 * (action.micro_batch * (self.last + 1) + action.stage) + (0 if action.kind is Kind.FORWARD else 2)


@dataclass
class Passed:
    """From stage to stage; `random`: the generator's state after a forward."""

    tensor: Tensor
    random: Tensor | None = None


@dataclass
class Spent:
    """Seconds of a step, by what this rank was at; on a GPU computing is launching it."""

    fetching: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    waiting: float = 0.0  # for other stages

    @property
    def computing(self) -> float:
        return self.forward + self.backward

    @contextlib.contextmanager
    def on(self, what: Literal["fetching", "forward", "backward", "waiting"]) -> Iterator[None]:
        started = time.perf_counter()
        yield
        setattr(self, what, getattr(self, what) + time.perf_counter() - started)


@dataclass
class PipelineStep:
    pipe: Pipe
    indices: Sequence[int]  # the micro-batches, as `work` counts them
    work: Work
    counted: int  # of `indices`, the first ones; the others are computed for nothing
    losses: dict[int, Tensor] = field(default_factory=dict)
    spent: Spent = field(default_factory=Spent)
    _batches: dict[int, Any] = field(default_factory=dict)
    _results: dict[Action, Passed] = field(default_factory=dict)
    _coming: dict[Action, tuple[Transfer, Passed]] = field(default_factory=dict)
    _going: list[Transfer] = field(default_factory=list)

    def run(self, program: Program) -> None:
        for entry in program:
            match entry:
                case Send():
                    self.send(entry)
                case Receive():
                    self.receive(entry)
                case Action():
                    self.compute(entry)
        self.let_go(len(self._going))

    def compute(self, action: Action) -> None:
        if action.kind is Kind.FORWARD:
            self.forward(action)
        elif action.kind is Kind.WEIGHT:
            with self.spent.on("backward"):
                self.pipe.stages[action.stage].backward_weight(action.micro_batch)
        else:
            self.backward(action)

    def forward(self, action: Action) -> None:
        _, number, micro_batch = action
        pipe, index = self.pipe, self.indices[micro_batch]
        batch = self.batch(action) if number in (0, pipe.last) else None
        inputs = inputs_of(self.work, index, batch) if number == 0 else self.inputs_from_before(action)
        head = functools.partial(self.loss, micro_batch, batch) if number == pipe.last else None
        with self.spent.on("forward"), self.work.autocast():
            outputs = pipe.stages[number].forward(micro_batch, inputs, gradient=pipe.learns_before(number), head=head)
        if number != pipe.last:
            self._results[action] = Passed(outputs, random_state(pipe.device))

    def inputs_from_before(self, action: Action) -> Tensor:
        """And the random numbers from where the stage before has left them."""
        passed = self.take(action._replace(stage=action.stage - 1))
        assert passed.random is not None
        set_random_state(self.pipe.device, passed.random)
        return passed.tensor

    def loss(self, micro_batch: int, batch: Any, outputs: Tensor) -> Tensor:
        """As backward begins with it."""
        index = self.indices[micro_batch]
        loss = self.work.loss(Exit(outputs), index, batch)
        if micro_batch >= self.counted:
            return loss * 0.0
        self.losses[index] = loss.detach()
        return scaled(loss, self.work.scale)

    def batch(self, action: Action) -> Any:
        """Fetched once, also where one rank has the first and the last stage; and seeded for the first."""
        if action.micro_batch in self._batches:
            return self._batches.pop(action.micro_batch)
        with self.spent.on("fetching"):
            batch = self.work.batch(self.indices[action.micro_batch])
        if self.pipe.last in self.pipe.stages and action.stage != self.pipe.last:
            self._batches[action.micro_batch] = batch
        return batch

    def backward(self, action: Action) -> None:
        kind, number, micro_batch = action
        stage, behind = self.pipe.stages[number], action._replace(stage=number + 1)
        gradient = self.take(behind).tensor if number < self.pipe.last and self.pipe.carries(behind) else None
        with self.spent.on("backward"):
            found = (stage.backward_input if kind is Kind.INPUT else stage.backward)(micro_batch, gradient)
        if self.pipe.carries(action):
            self._results[action] = Passed(self.room_for(action).zero_() if found is None else found)

    def room_for(self, action: Action) -> Tensor:
        """An uninitialized tensor like the one that this action computes."""
        return self.pipe.boundary(action).empty(self.work.rows(self.indices[action.micro_batch]), self.pipe.device)

    def take(self, action: Action) -> Passed:
        """Computed here, or received."""
        if action in self._results:
            return self._results.pop(action)
        transfer, passed = self._coming.pop(action)
        with self.spent.on("waiting"):
            self.pipe.group.end_transfers([transfer])
        return passed

    def send(self, send: Send) -> None:
        action = send.action
        if not self.pipe.carries(action):
            return
        passed = self._results.pop(action)
        self.require_expected(action, passed.tensor)
        self._going.append(self.start(dist.isend, Passed(passed.tensor.contiguous(), passed.random), action, send.rank))
        if len(self._going) == MOST_SENDS:
            self.let_go(MOST_SENDS // 2)

    def receive(self, receive: Receive) -> None:
        action = receive.action
        if not self.pipe.carries(action):
            return
        random = torch.empty_like(random_state(self.pipe.device)) if action.kind is Kind.FORWARD else None
        passed = Passed(self.room_for(action), random)
        self._coming[action] = (self.start(dist.irecv, passed, action, receive.rank), passed)

    def start(self, way: Any, passed: Passed, action: Action, place: int) -> Transfer:
        peer, tag = self.pipe.ranks[place], self.pipe.tag(action)
        tensors = [passed.tensor] if passed.random is None else [passed.tensor, passed.random]
        operations = [dist.P2POp(way, tensor, peer, tag=tag + number) for number, tensor in enumerate(tensors)]
        return self.pipe.group.start_transfer(operations, along="pipeline")

    def let_go(self, count: int) -> None:
        """Of the oldest sends."""
        oldest, self._going = self._going[:count], self._going[count:]
        if oldest:
            with self.spent.on("waiting"):
                self.pipe.group.end_transfers(oldest)

    def require_expected(self, action: Action, tensor: Tensor) -> None:
        expected = self.pipe.boundary(action)
        shape = expected.shape_of(self.work.rows(self.indices[action.micro_batch]))
        if (tuple(tensor.shape), tensor.dtype) != (shape, expected.dtype):
            raise BoundaryMismatchError(
                f"stage {action.stage} gives {tensor.dtype} {list(tensor.shape)}, but its neighbour expects {expected.dtype} {list(shape)}, "
                "as the first micro-batch had it; a pipeline needs samples of one shape: pad them, or train with ddp or fsdp"
            )


def random_state(device: torch.device) -> Tensor:
    """Of the generator that `device` draws from, on `device` (bytes)."""
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device).to(device)
    return torch.get_rng_state()


def set_random_state(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state.cpu(), device)
    else:
        torch.set_rng_state(state)
