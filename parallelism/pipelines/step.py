"""One step of one rank's pipeline program: micro-batches are fetched, stages computed, activations and gradients sent and received.

With each activation goes the state of the random numbers, so that the next stage continues drawing where this one stopped: dropout in a
pipeline is the one that a single process draws. What the loss draws before it calls the model, as mixup does, it draws again on the last
stage, from where it began on the first.
"""

from __future__ import annotations

import contextlib
import functools
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from paceline.distributed.process_group import Group, PointToPoint
from paceline.parallelism.pipelines.chain import Boundary, UnsplittableModelError
from paceline.parallelism.pipelines.order import Program, Receive, Send
from paceline.parallelism.pipelines.schedules import OperationKind, PipelineAction
from paceline.parallelism.pipelines.stage import Stage
from paceline.parallelism.pipelines.stand_ins import WAY_OUT, ModelCalled, StageInput, StageOutput
from paceline.parallelism.precision import scaled
from paceline.parallelism.running_statistics import unchanged_buffers
from paceline.parallelism.tensor_context.sequence import SequenceShard

#: The most sends in flight: a tensor cannot be freed before it is sent.
MOST_SENDS = 8


class BoundaryMismatchError(RuntimeError):
    """A stage gives a tensor of another shape or type than the next stage expects."""


class Work(Protocol):
    """The micro-batches of a step, by index. Methods are called in the order in which a stage computes the micro-batches."""

    @property
    def scale(self) -> float:
        """The factor, a power of two, that losses are multiplied by before backward."""
        ...

    def rows(self, index: int) -> int:
        """Return the number of samples of a micro-batch."""
        ...

    def batch(self, index: int) -> Any:
        """Seed all randomness for a micro-batch and fetch it. Called on the ranks of the first and the last stage."""
        ...

    def loss(self, model: nn.Module, index: int, batch: Any) -> Tensor:
        """Return the micro-batch's part of the mean loss over the global batch.

        Calls `model` exactly once, with one tensor. It runs on the first and on the last stage, from the same random numbers.
        """
        ...

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """Return the context for the forward pass."""
        ...


def inputs_of(work: Work, index: int, batch: Any) -> Tensor:
    """Return the tensor that the loss of a micro-batch calls the model with. Raises `UnsplittableModelError` if it does not call the
    model.
    """
    try:
        work.loss(StageInput(), index, batch)
    except ModelCalled as called:
        return called.inputs
    raise UnsplittableModelError(f"the loss does not call the model that it is given; {WAY_OUT}")


@dataclass(frozen=True)
class LocalPipeline:
    """The pipeline as one rank sees it: the ranks, the stages of this rank, and the tensors between stages."""

    group: Group  # the world's
    ranks: tuple[int, ...]  # the world ranks of the pipeline
    stages: Mapping[int, Stage]  # this rank's own
    boundaries: Sequence[Boundary]  # between each stage and the next
    device: torch.device

    @property
    def last(self) -> int:
        """The number of the last stage."""
        return len(self.boundaries)

    def shard(self, shards: Sequence[SequenceShard]) -> LocalPipeline:
        """Return the pipeline of ranks that pass on one shard of every tensor."""
        return replace(self, boundaries=[boundary.shard(shards) for boundary in self.boundaries])

    def is_sent(self, action: PipelineAction) -> bool:
        """Whether the result of `action` goes to another stage: no gradient goes to a stage without trained parameters before or in it."""
        return action.kind is OperationKind.FORWARD or self.needs_input_gradient(action.stage)

    def needs_input_gradient(self, stage: int) -> bool:
        """Whether the gradient of a stage's inputs is needed by the stage before."""
        return stage > 0 and self.boundaries[stage - 1].has_gradient

    def boundary(self, action: PipelineAction) -> Boundary:
        """Return the boundary that the result of `action` crosses."""
        return self.boundaries[action.stage if action.kind is OperationKind.FORWARD else action.stage - 1]

    def tag(self, action: PipelineAction) -> int:
        """Return the first of three tags of `action`: for the activation, the random state and the gradient."""
        return 3 * (action.micro_batch * (self.last + 1) + action.stage) + (0 if action.kind is OperationKind.FORWARD else 2)


@dataclass
class PassedTensor:
    """A tensor that one stage passes to another. `random`: the generator's state after a forward pass."""

    tensor: Tensor
    random: Tensor | None = None


class FetchedBatch(NamedTuple):
    """A micro-batch, and the state of the random numbers with which its loss begins."""

    batch: Any
    random: RandomState


@dataclass
class StepTimings:
    """Seconds of a step by what this rank did; on a GPU, computing means launching kernels."""

    fetching: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    waiting: float = 0.0  # for other stages

    @property
    def computing(self) -> float:
        """Seconds of forward and backward together."""
        return self.forward + self.backward

    @contextlib.contextmanager
    def on(self, what: Literal["fetching", "forward", "backward", "waiting"]) -> Iterator[None]:
        """Add the seconds of the block to one of the timings."""
        started = time.perf_counter()
        yield
        setattr(self, what, getattr(self, what) + time.perf_counter() - started)


@dataclass
class PipelineStep:
    """The state of one step of one rank."""

    pipe: LocalPipeline
    indices: Sequence[int]  # the micro-batches, as `work` counts them
    work: Work
    counted: int  # so many of `indices`, the first ones, count; the others are dummy micro-batches
    losses: dict[int, Tensor] = field(default_factory=dict)
    timings: StepTimings = field(default_factory=StepTimings)
    _batches: dict[int, FetchedBatch] = field(default_factory=dict)
    _results: dict[PipelineAction, PassedTensor] = field(default_factory=dict)
    _receives: dict[PipelineAction, tuple[PointToPoint, PassedTensor]] = field(default_factory=dict)
    _sends: list[PointToPoint] = field(default_factory=list)

    def run(self, program: Program) -> None:
        """Carry out the rank's program."""
        for entry in program:
            match entry:
                case Send():
                    self.send(entry)
                case Receive():
                    self.receive(entry)
                case PipelineAction():
                    self.compute(entry)
        self.finish_sends(len(self._sends))

    def compute(self, action: PipelineAction) -> None:
        """Carry out one operation of a stage."""
        if action.kind is OperationKind.FORWARD:
            self.forward(action)
        elif action.kind is OperationKind.WEIGHT:
            with self.timings.on("backward"):
                self.pipe.stages[action.stage].backward_weight(action.micro_batch)
        else:
            self.backward(action)

    def forward(self, action: PipelineAction) -> None:
        _, number, micro_batch = action
        pipe, index = self.pipe, self.indices[micro_batch]
        fetched = self.batch(action) if number in (0, pipe.last) else None
        inputs = inputs_of(self.work, index, fetched.batch) if fetched and number == 0 else self.inputs_from_before(action)
        head = functools.partial(self.loss, micro_batch, fetched) if fetched and number == pipe.last else None
        with self.timings.on("forward"), self.work.autocast(), self.statistics(number, micro_batch):
            outputs = pipe.stages[number].forward(micro_batch, inputs, gradient=pipe.needs_input_gradient(number), head=head)
        if number != pipe.last:
            self._results[action] = PassedTensor(outputs, random_state(pipe.device))

    def statistics(self, stage: int, micro_batch: int) -> contextlib.AbstractContextManager[None]:
        """Return the context for a forward pass. A dummy micro-batch, which another pipeline counts, changes no running statistics."""
        is_dummy = micro_batch >= self.counted
        return unchanged_buffers(self.pipe.stages[stage].outputs, is_pending=True) if is_dummy else contextlib.nullcontext()

    def inputs_from_before(self, action: PipelineAction) -> Tensor:
        """Return the outputs of the stage before, and set the random state to where that stage left it."""
        passed = self.take_result(action._replace(stage=action.stage - 1))
        assert passed.random is not None
        set_random_state(self.pipe.device, passed.random)
        return passed.tensor

    def loss(self, micro_batch: int, fetched: FetchedBatch, outputs: Tensor) -> Tensor:
        """Return the scaled loss, with which backward begins, and record it."""
        index = self.indices[micro_batch]
        draw_on = functools.partial(set_random_state, self.pipe.device, random_state(self.pipe.device))
        fetched.random.restore()
        loss = self.work.loss(StageOutput(outputs, draw_on), index, fetched.batch)
        if micro_batch >= self.counted:
            return loss * 0.0
        self.losses[index] = loss.detach()
        return scaled(loss, self.work.scale)

    def batch(self, action: PipelineAction) -> FetchedBatch:
        """Fetch a micro-batch once, also where one rank has the first and the last stage; it is seeded for the first stage."""
        if action.micro_batch in self._batches:
            return self._batches.pop(action.micro_batch)
        with self.timings.on("fetching"):
            fetched = FetchedBatch(self.work.batch(self.indices[action.micro_batch]), RandomState.of(self.pipe.device))
        if self.pipe.last in self.pipe.stages and action.stage != self.pipe.last:
            self._batches[action.micro_batch] = fetched
        return fetched

    def backward(self, action: PipelineAction) -> None:
        kind, number, micro_batch = action
        stage, behind = self.pipe.stages[number], action._replace(stage=number + 1)
        gradient = self.take_result(behind).tensor if number < self.pipe.last and self.pipe.is_sent(behind) else None
        with self.timings.on("backward"):
            found = (stage.backward_input if kind is OperationKind.INPUT else stage.backward)(micro_batch, gradient)
        if self.pipe.is_sent(action):
            self._results[action] = PassedTensor(self.empty_result(action).zero_() if found is None else found)

    def empty_result(self, action: PipelineAction) -> Tensor:
        """Return an uninitialized tensor like the result of `action`."""
        return self.pipe.boundary(action).empty(self.work.rows(self.indices[action.micro_batch]), self.pipe.device)

    def take_result(self, action: PipelineAction) -> PassedTensor:
        """Return a result that was computed here, or wait for one that is received."""
        if action in self._results:
            return self._results.pop(action)
        transfer, passed = self._receives.pop(action)
        with self.timings.on("waiting"):
            self.pipe.group.end_transfers([transfer])
        return passed

    def send(self, send: Send) -> None:
        """Start to send the result of an action, if another stage needs it."""
        action = send.action
        if not self.pipe.is_sent(action):
            return
        passed = self._results.pop(action)
        self.require_expected(action, passed.tensor)
        random_bytes = None if passed.random is None else passed.random.to(self.pipe.device)
        self._sends.append(self.start(dist.isend, PassedTensor(passed.tensor.contiguous(), random_bytes), action, send.rank))
        if len(self._sends) == MOST_SENDS:
            self.finish_sends(MOST_SENDS // 2)

    def receive(self, receive: Receive) -> None:
        """Start to receive the result of an action, if this rank needs it."""
        action = receive.action
        if not self.pipe.is_sent(action):
            return
        is_forward, device = action.kind is OperationKind.FORWARD, self.pipe.device
        passed = PassedTensor(self.empty_result(action), torch.empty_like(random_state(device), device=device) if is_forward else None)
        self._receives[action] = (self.start(dist.irecv, passed, action, receive.rank), passed)

    def start(self, way: Any, passed: PassedTensor, action: PipelineAction, place: int) -> PointToPoint:
        """Start the transfer of a result to or from the rank at index `place` of the pipeline."""
        peer, tag = self.pipe.ranks[place], self.pipe.tag(action)
        tensors = [passed.tensor] if passed.random is None else [passed.tensor, passed.random]
        operations = [dist.P2POp(way, tensor, peer, tag=tag + number) for number, tensor in enumerate(tensors)]
        return self.pipe.group.start_transfer(operations, along="pipeline")

    def finish_sends(self, count: int) -> None:
        """Wait for the oldest `count` sends and release their tensors."""
        oldest, self._sends = self._sends[:count], self._sends[count:]
        if oldest:
            with self.timings.on("waiting"):
                self.pipe.group.end_transfers(oldest)

    def require_expected(self, action: PipelineAction, tensor: Tensor) -> None:
        """Raise `BoundaryMismatchError` unless `tensor` has the shape and type that the next stage expects."""
        expected = self.pipe.boundary(action)
        shape = expected.shape_of(self.work.rows(self.indices[action.micro_batch]))
        if (tuple(tensor.shape), tensor.dtype) != (shape, expected.dtype):
            raise BoundaryMismatchError(
                f"stage {action.stage} gives {tensor.dtype} {list(tensor.shape)}, but its neighbour expects {expected.dtype} {list(shape)}, "
                "as the first micro-batch had it; a pipeline needs samples of one shape: pad them, or train with ddp or fsdp"
            )


@dataclass(frozen=True)
class RandomState:
    """The states of all generators that a loss may draw from."""

    device: torch.device
    python: Any
    numpy: Any
    cpu: Tensor
    own: Tensor  # of the generator that `device` draws from

    @classmethod
    def of(cls, device: torch.device) -> RandomState:
        """Return the present states."""
        return cls(device, random.getstate(), np.random.get_state(), torch.get_rng_state(), random_state(device))

    def restore(self) -> None:
        """Set the generators to these states."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.cpu)
        set_random_state(self.device, self.own)


def random_state(device: torch.device) -> Tensor:
    """Return the state of the generator that `device` draws from, as bytes in the host's memory."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def set_random_state(device: torch.device, state: Tensor) -> None:
    """Set the state of the generator that `device` draws from."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state.cpu(), device)
    else:
        torch.set_rng_state(state)
