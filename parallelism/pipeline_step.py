"""One step of one rank's pipeline program: stages computed, activations and gradients sent to and received from the neighbours.

With each activation goes the state of the random numbers, so that the next stage goes on drawing where this one stopped: dropout in a
pipeline is the one that a single process draws.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from distributed.process_group import Group
from parallelism.chain import Boundary, UncuttableModelError
from parallelism.pipeline_order import Program, Receive, Send
from parallelism.pipeline_stage import Stage
from parallelism.schedules import Action, Kind

#: Sends that may be under way: what is sent cannot be freed before it has gone.
MOST_SENDS = 8


class BoundaryMismatchError(RuntimeError):
    """A stage gives something else than the next one waits for."""


class Work(Protocol):
    """Micro-batches, by index; called in the order in which a stage computes them."""

    def rows(self, index: int) -> int:
        """Samples."""
        ...

    def batch(self, index: int) -> Any:
        """Seed all randomness for this micro-batch, then fetch it. Called on the first and the last stage."""
        ...

    def loss(self, model: nn.Module, index: int, batch: Any) -> Tensor:
        """Its part of the mean over the global batch. Calls `model` once, with one tensor, and draws nothing before that."""
        ...

    def autocast(self) -> AbstractContextManager[object]:
        """Around the forward pass."""
        ...


@dataclass(frozen=True)
class Line:
    """What a rank knows of its pipeline."""

    group: Group  # of the world
    ranks: tuple[int, ...]  # the world ranks of the pipeline
    stages: Mapping[int, Stage]  # this rank's own
    boundaries: Sequence[Boundary]  # between each stage and the next
    device: torch.device

    @property
    def last(self) -> int:
        return len(self.boundaries)

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
class PipelineStep:
    line: Line
    indices: Sequence[int]  # the micro-batches, as `work` counts them
    work: Work
    losses: dict[int, Tensor] = field(default_factory=dict)
    busy: float = 0.0  # seconds of computing; on a GPU, of launching it
    _batches: dict[int, Any] = field(default_factory=dict)
    _results: dict[Action, Passed] = field(default_factory=dict)
    _coming: dict[Action, tuple[Callable[[], None], Passed]] = field(default_factory=dict)
    _going: deque[Callable[[], None]] = field(default_factory=deque)

    def run(self, program: Program) -> None:
        for entry in program:
            match entry:
                case Send():
                    self.send(entry)
                case Receive():
                    self.receive(entry)
                case Action():
                    self.compute(entry)
        self.let_go(0)

    def compute(self, action: Action) -> None:
        if action.kind is Kind.FORWARD:
            self.forward(action)
        elif action.kind is Kind.WEIGHT:
            with self.computing():
                self.line.stages[action.stage].backward_weight(action.micro_batch)
        else:
            self.backward(action)

    @contextlib.contextmanager
    def computing(self) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.busy += time.perf_counter() - started

    def forward(self, action: Action) -> None:
        _, number, micro_batch = action
        line, index = self.line, self.indices[micro_batch]
        batch = self.batch(action) if number in (0, line.last) else None
        inputs = inputs_of(self.work, index, batch) if number == 0 else self.inputs_from_before(action)
        head = functools.partial(self.loss, index, batch) if number == line.last else None
        with self.computing(), self.work.autocast():
            outputs = line.stages[number].forward(micro_batch, inputs, gradient=line.learns_before(number), head=head)
        if number == line.last:
            self.losses[index] = outputs
        else:
            self._results[action] = Passed(outputs, random_state(line.device))

    def inputs_from_before(self, action: Action) -> Tensor:
        """And the random numbers from where the stage before has left them."""
        passed = self.take(action._replace(stage=action.stage - 1))
        assert passed.random is not None
        set_random_state(self.line.device, passed.random)
        return passed.tensor

    def loss(self, index: int, batch: Any, outputs: Tensor) -> Tensor:
        return self.work.loss(Exit(outputs), index, batch)

    def batch(self, action: Action) -> Any:
        """Fetched once, also where one rank has the first and the last stage; and seeded for the first."""
        if action.micro_batch in self._batches:
            return self._batches.pop(action.micro_batch)
        batch = self.work.batch(self.indices[action.micro_batch])
        if self.line.last in self.line.stages and action.stage != self.line.last:
            self._batches[action.micro_batch] = batch
        return batch

    def backward(self, action: Action) -> None:
        kind, number, micro_batch = action
        stage, behind = self.line.stages[number], action._replace(stage=number + 1)
        gradient = self.take(behind).tensor if number < self.line.last and self.line.carries(behind) else None
        with self.computing():
            found = (stage.backward_input if kind is Kind.INPUT else stage.backward)(micro_batch, gradient)
        if self.line.carries(action):
            self._results[action] = Passed(self.room_for(action).zero_() if found is None else found)

    def room_for(self, action: Action) -> Tensor:
        """An uninitialized tensor like the one that this action computes."""
        return self.line.boundary(action).empty(self.work.rows(self.indices[action.micro_batch]), self.line.device)

    def take(self, action: Action) -> Passed:
        """Computed here, or received."""
        if action in self._results:
            return self._results.pop(action)
        finish, passed = self._coming.pop(action)
        finish()
        return passed

    def send(self, send: Send) -> None:
        action = send.action
        if not self.line.carries(action):
            return
        passed = self._results.pop(action)
        self.require_expected(action, passed.tensor)
        self._going.append(self.start(dist.isend, Passed(passed.tensor.contiguous(), passed.random), action, send.rank))
        self.let_go(MOST_SENDS)

    def receive(self, receive: Receive) -> None:
        action = receive.action
        if not self.line.carries(action):
            return
        random = torch.empty_like(random_state(self.line.device)) if action.kind is Kind.FORWARD else None
        passed = Passed(self.room_for(action), random)
        self._coming[action] = (self.start(dist.irecv, passed, action, receive.rank), passed)

    def start(self, way: Any, passed: Passed, action: Action, place: int) -> Callable[[], None]:
        peer, tag = self.line.ranks[place], self.line.tag(action)
        tensors = [passed.tensor] if passed.random is None else [passed.tensor, passed.random]
        return self.line.group.start_transfer([dist.P2POp(way, tensor, peer, tag=tag + number) for number, tensor in enumerate(tensors)])

    def let_go(self, left: int) -> None:
        while len(self._going) > left:
            self._going.popleft()()

    def require_expected(self, action: Action, tensor: Tensor) -> None:
        expected = self.line.boundary(action)
        shape = (self.work.rows(self.indices[action.micro_batch]), *expected.shape)
        if (tuple(tensor.shape), tensor.dtype) != (shape, expected.dtype):
            raise BoundaryMismatchError(
                f"stage {action.stage} gives {tensor.dtype} {list(tensor.shape)}, but its neighbour expects {expected.dtype} {list(shape)}, "
                "as the first micro-batch had it; a pipeline needs samples of one shape: pad them, or train with ddp or fsdp"
            )


class Entrance(nn.Module):
    """Stands in for the model, to see what it would be called with."""

    def forward(self, inputs: Tensor) -> Tensor:
        raise _Entered(inputs)


class _Entered(Exception):
    def __init__(self, inputs: Tensor) -> None:
        self.inputs = inputs


def inputs_of(work: Work, index: int, batch: Any) -> Tensor:
    """What the loss of a micro-batch calls the model with."""
    try:
        work.loss(Entrance(), index, batch)
    except _Entered as entered:
        return entered.inputs
    raise UncuttableModelError("the loss does not call the model that it is given; a pipeline needs it to, once, with one tensor")


class Exit(nn.Module):
    """Stands in for the model, to hand over what it would give."""

    def __init__(self, outputs: Tensor) -> None:
        super().__init__()
        self._outputs = outputs

    def forward(self, inputs: Tensor) -> Tensor:
        return self._outputs


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
