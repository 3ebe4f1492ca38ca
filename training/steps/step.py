"""A step whose micro-batches are computed one after the other: this rank's share of them, and one exchange with the others."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor, nn

from paceline.distributed.process_group import Group
from paceline.distributed.solo_group import SoloGroup
from paceline.parallelism.plan import Coordinates, MicroBatchAssignment, assign_evenly
from paceline.parallelism.precision import autocast, scaled
from paceline.parallelism.running_statistics import unchanged_buffers
from paceline.parallelism.tensor_context.tensor_parallel import full_tensor
from paceline.parallelism.wrapped import SingleProcess, Wrapped
from paceline.training.optim.optimizers import clip_gradients
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import PartialStep, TrainState
from paceline.training.steps.step_sync import BoundaryRequests, StepConsensus, StepSync
from paceline.training.steps.stepping import StepClock, StepRunner, sums_of, to_device
from paceline.training.task import Batch, Dataset


class Pass(Protocol):
    """A forward and a backward pass; the `with` block runs between the two. `final`: the rank's last one in its step."""

    def __call__(self, *, final: bool) -> AbstractContextManager[None]: ...


@contextlib.contextmanager
def empty_pass(*, final: bool) -> Iterator[None]:
    """Compute nothing: every micro-batch of this rank was computed in an earlier generation."""
    yield


class LocalStepRunner(StepRunner):
    """Computes this rank's micro-batches one after the other, and exchanges gradients once at the end of the step."""

    def __init__(
        self, spec: JobSpec, state: TrainState, group: Group, wrapped: Wrapped, coordinates: Coordinates, first: MicroBatchAssignment
    ) -> None:
        super().__init__(spec, state, group, wrapped, coordinates, first)
        self.wrapped = wrapped

    def accumulate(self, partial: PartialStep, clock: StepClock, requests: BoundaryRequests) -> StepConsensus:
        self.group.exposure.drop()
        self.wrapped.begin_step(self.assignment, partial.sums)
        sync = StepSync(partial, self.assignment.micro_batches, self.coordinates, self.state.device)
        *earlier, last = self.passes(partial, sync, clock)
        for run in earlier:
            with run(final=False):
                pass
        with last(final=True):
            finish = sync.send(self.group, requests)  # travels while the last backward computes
        exposed = self.wrapped.finish_step()
        clock.lap("backward_seconds")
        clock.move(exposed, "backward_seconds", "communication_seconds")
        sums = finish()
        clock.lap_values(self.group.exposure)
        return sync.read(sums, self.group.world_size)

    def passes(self, partial: PartialStep, sync: StepSync, clock: StepClock) -> list[Pass]:
        """Return what this rank runs for the step, in order; never empty.

        First come the micro-batches that `partial` lacks. Where forward and backward are collective, dummy passes follow until this rank
        has run as many as the rank with the most micro-batches. A rank with nothing left to run gets one pass without computation.
        """
        missing = [index for index in self.assignment.own if index not in partial.losses]
        dummies = self.assignment.max_per_rank - len(self.assignment.own) if self.wrapped.has_collective_forward else 0
        real: list[Pass] = [functools.partial(self.real_pass, index, partial, sync, clock) for index in missing]
        return [*real, *[functools.partial(self.dummy_pass, partial.step, clock)] * dummies] or [empty_pass]

    @contextlib.contextmanager
    def real_pass(self, index: int, partial: PartialStep, sync: StepSync, clock: StepClock, *, final: bool) -> Iterator[None]:
        """Run forward and backward of micro-batch `index`, and note its loss in `sync` and `partial`. Yields between the two."""
        batch = self.fetch(partial.step, index)
        clock.lap("data_seconds")
        with self.wrapped.accumulate(index, final=final):
            loss = self.forward(index, batch)
            sync.add(index, loss)
            yield
            self.lap_pass(clock, "forward_seconds")
            scaled(loss, self.state.scale.value).backward()  # type: ignore[no-untyped-call]
        partial.losses[index] = loss.detach()
        self.lap_pass(clock, "backward_seconds")

    @contextlib.contextmanager
    def dummy_pass(self, step: int, clock: StepClock, *, final: bool) -> Iterator[None]:
        """Run forward and backward on an arbitrary batch with loss x 0, so that this rank joins the all-gathers of ranks that have one
        micro-batch more (FSDP). Yields between the two."""
        with unchanged_buffers(self.state.task.model), self.wrapped.accumulate(0, final=final):
            loss = self.forward(0, self.fetch(step, 0)) * 0.0
            yield
            loss.backward()  # type: ignore[no-untyped-call]
        self.lap_pass(clock, "backward_seconds")

    def run_warmup(self, micro_batches: Sequence[int]) -> None:
        step_runner = solo_step_runner(self.spec, self.state)
        for index in micro_batches:
            self.state.begin_step()
            step_runner.forward(index, step_runner.fetch(1, index)).backward()  # type: ignore[no-untyped-call]
            self.state.rewind()

    def lap_pass(self, clock: StepClock, part: str) -> None:
        """Count the time since the last lap as `part`, except the time that the rank waited for others within the pass: communication."""
        clock.lap(part)
        clock.move(self.wrapped.waited(), part, "communication_seconds")

    def forward(self, index: int, batch: Batch) -> Tensor:
        """Return this micro-batch's part of the mean loss over the global batch, or this rank's share of that part."""
        with autocast(self.spec.precision, self.state.device):
            loss, _ = self.state.task.loss(self.wrapped.module, self.wrapped.local_batch(batch))
        return full_tensor(loss) * (self.portions.weight(index) / self.coordinates.degrees.context)

    def clip(self, limit: float | None) -> Tensor:
        return clip_gradients(self.state.task.model.parameters(), limit, self.group.axis_groups)

    def evaluate_assigned(self, held_out: Dataset, batches: Sequence[Tensor]) -> tuple[list[str], Mapping[int, Tensor]]:
        assignment = self.coordinates.evaluation_assignment(len(batches))
        sums = {number: self.sums_of(held_out, batches[number]) for number in assignment.own}
        if not assignment.own or (
            self.wrapped.has_collective_forward and len(assignment.own) < assignment.max_per_rank
        ):  # a rank without a batch must still know the names
            names = list(self.sums_of(held_out, batches[0][:1]))
        else:
            names = list(sums[assignment.own[0]])
        reported = sums if self.coordinates.is_loss_reporter else {}
        return names, {number: torch.stack(list(values.values())) for number, values in reported.items()}

    def sums_of(self, held_out: Dataset, indices: Tensor) -> dict[str, Tensor]:
        return sums_of(self.spec, self.state, self.state.task.model, to_device(held_out.batch(indices, None), self.state.device))

    @property
    def whole_model(self) -> nn.Module:
        return self.state.task.model


def solo_step_runner(spec: JobSpec, state: TrainState) -> LocalStepRunner:
    """Return a step runner of a rank by itself, without communication."""
    return LocalStepRunner(
        spec, state, SoloGroup(), SingleProcess(state.task.model), Coordinates(), assign_evenly(derived.micro_batches(spec), 1)
    )
