"""Base of all optimizer steps, however gradients are computed: one update of the parameters, and the held-out evaluation."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor, nn

from paceline.distributed.exposure import WaitClock
from paceline.distributed.process_group import Group
from paceline.monitoring.loss_watch import BadLossKind
from paceline.monitoring.points import STEP_PARTS
from paceline.parallelism.plan import Coordinates, MicroBatchAssignment
from paceline.parallelism.precision import autocast, unscale_gradients
from paceline.parallelism.tree import tree_sum
from paceline.parallelism.wrapped import PreparedModel
from paceline.training.data.feed import Feed
from paceline.training.data.prefetch import BatchPosition, ahead
from paceline.training.data.sampler import BatchSplit, evaluation_indices
from paceline.training.optim.bad_loss import BadLossVerdict
from paceline.training.optim.loss_guard import MeasuredStep
from paceline.training.optim.loss_scale import ReadOnce
from paceline.training.optim.optimizers import set_learning_rates
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import PartialStep, StepReport, TrainState, seed_everything
from paceline.training.steps.step_sync import BoundaryRequests, StepConsensus
from paceline.training.task import Batch, Dataset


class StepClock:
    """Splits a step's time into parts, in host time: kernels that run behind are paid for where the host waits for them (CUDA)."""

    def __init__(self) -> None:
        self.parts = dict.fromkeys(STEP_PARTS, 0.0)
        self.started = self.now = time.perf_counter()

    def lap(self, part: str) -> None:
        """Count the time since the last lap as `part`."""
        before, self.now = self.now, time.perf_counter()
        self.parts[part] += self.now - before

    def skip(self, seconds: float) -> None:
        """Exclude the last `seconds` from the step."""
        self.started += seconds
        self.now += seconds

    def move(self, seconds: float, source: str, target: str) -> None:
        self.parts[source] -= seconds
        self.parts[target] += seconds

    def lap_values(self, exposure: WaitClock) -> None:
        """Count the time since the last lap, in which the host waited for the step's summed values: for other ranks, or for kernels that ran behind. The
        waits of these kernels are known now, and are moved from backward to communication."""
        self.lap(exposure.waits_for)
        self.move(min(exposure.collect(), self.parts["backward_seconds"]), "backward_seconds", "communication_seconds")

    def told_parts(self, exposure: WaitClock) -> Mapping[str, float]:
        """Return the parts as they are told. Where only some of the waits are known they stay in backward, as the others do, and communication is absent: it
        would look like next to nothing."""
        told = dict(self.parts)
        if not exposure.is_whole:
            told["backward_seconds"] += told.pop("communication_seconds")
        return told


class StepRunner(ABC):
    """Runs the steps of one generation. The first may be half done: `first` assigns the rest of it; all others are assigned evenly."""

    bubble: float | None = None  # of the newest step, measured; None: no pipeline
    left_out: Mapping[int, BadLossKind] = MappingProxyType({})  # steps that are not applied: the job has gone back because of them

    def __init__(
        self, spec: JobSpec, state: TrainState, group: Group, prepared: PreparedModel, coordinates: Coordinates, first: MicroBatchAssignment
    ) -> None:
        self.spec, self.state, self.group, self.prepared, self.coordinates = spec, state, group, prepared, coordinates
        self.training = derived.training_of(spec)
        self.assignment, self.even = first, coordinates.assignment(derived.micro_batches(spec))
        self.portions = BatchSplit(self.training.global_batch_size, derived.micro_batch_size(spec))
        self.weights = [self.portions.weight(index) for index in range(derived.micro_batches(spec))]
        self.feed = ahead(state.feed, self.upcoming(), self.training.data_workers)

    def run(self, requests: BoundaryRequests) -> StepReport:
        """Run and commit the step after `state.step`.

        Raises BadLossError on every rank where the loss is bad and the job is to stop or to go back; the state is then unchanged.
        """
        clock, partial = StepClock(), self.state.begin_step()
        state = self.state
        self.group.sent()  # forget what evaluation and saves have sent
        rate = set_learning_rates(state.optimizer, state.peak_rates, self.spec.schedule, partial.step, state.total_steps)
        clock.lap("optimizer_seconds")
        agreed = self.accumulate(partial, clock, requests)
        norm, applied, bad = self.update(partial.step, agreed, clock)
        scale = state.scale if bad and bad.holds_back else state.scale.after(partial.step, applied=applied)
        guard = state.guard.after(partial.step, agreed.loss, bad)
        clock.lap("other_seconds")
        report = StepReport(
            step=partial.step,
            loss=agreed.loss,
            gradient_norm=norm,
            learning_rate=rate,
            first_sample=self.portions.first(partial.step),
            samples=self.training.global_batch_size,
            seconds=clock.now - clock.started,
            parts=clock.told_parts(self.group.exposure),
            pause=agreed.pause,
            checkpoint=agreed.checkpoint,
            leave=agreed.leave,
            gradients=agreed.gradients,
            time=time.time(),
            outcomes=agreed.outcomes,
            sent=self.group.sent(),
            bubble=self.bubble,
            scale=scale,
            applied=applied,
            bad=bad,
            skipped_updates=scale.skipped_updates + guard.skipped_updates,
        )
        self.state.commit(report, guard)
        self.assignment = self.even
        return report

    @abstractmethod
    def accumulate(self, partial: PartialStep, clock: StepClock, requests: BoundaryRequests) -> StepConsensus:
        """Compute the global gradients into the model. What this rank computes of them stays in `partial`."""

    @abstractmethod
    def run_warmup(self, micro_batches: Sequence[int]) -> None:
        """Run forward and backward of these micro-batches of step 1, and leave nothing but compiled code.

        Collective where the model is split into parts.
        """

    @abstractmethod
    def clip(self, limit: float | None) -> Tensor:
        """Clip the gradients to norm `limit`; return their norm before, the same on every rank."""

    @abstractmethod
    def evaluate_assigned(self, held_out: Dataset, batches: Sequence[Tensor]) -> tuple[list[str], Mapping[int, Tensor]]:
        """Evaluate this rank's batches of held-out samples (`batches`: indices).

        Returns the names of the sums, `samples` first, and the sums by the number of the batch, for batches that this rank reports.
        """

    @property
    @abstractmethod
    def whole_model(self) -> nn.Module:
        """The model as one process calls it. Collective where forward passes are."""

    def fetch(self, step: int, index: int) -> Batch:
        return fetch(self.spec, self.state, self.feed, step, index)

    def update(self, step: int, agreed: StepConsensus, clock: StepClock) -> tuple[float, bool, BadLossVerdict | None]:
        """Judge the step and apply its update. Returns (norm of the gradients before clipping, whether they were applied, fault of the
        loss or None).

        A step that is not applied leaves nothing in the model, nor in its running statistics. Raises BadLossError.
        """
        state = self.state
        unscale_gradients(state.task.model.parameters(), state.scale.value)
        norm = ReadOnce(self.clip(self.training.gradient_clip_norm))
        found = MeasuredStep(step, agreed.loss, agreed.losses, self.weights, norm, gradients_count=not state.scale.skips_overflows)
        bad = state.guard.judge(found, self.spec.fault_tolerance, self.left_out.get(step))
        applied = not (bad and bad.holds_back) and state.scale.admits(norm)
        if applied:
            state.apply_update()
        else:
            state.rewind()
        if bad and bad.ends_generation:
            raise state.guard.error(step, bad)
        gradient_norm = norm.item()
        clock.lap("optimizer_seconds")
        return gradient_norm, applied, bad

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Return means over the held-out samples, a fixed list of batches shared out over the ranks; the same on every rank and world."""
        held_out, model = self.state.task.evaluation, self.state.task.model
        if held_out is None:
            return {}
        self.prepared.sync_buffers()
        batches = torch.split(evaluation_indices(len(held_out), self.training.eval_samples), derived.micro_batch_size(self.spec))
        model.eval()
        names, sums = self.evaluate_assigned(held_out, batches)
        self.state.set_training_mode()
        table = torch.zeros(len(batches), len(names), dtype=torch.float64, device=self.state.device)
        for number, values in sums.items():
            table[number] = values
        samples, *totals = tree_sum(self.group.start_sum(table)().unbind(), torch.add).tolist()
        return {name: total / samples for name, total in zip(names[1:], totals, strict=True)}

    def upcoming(self) -> Iterator[BatchPosition]:
        """Return the micro-batches that this rank will fetch, in order."""
        return upcoming(self.state, self.assignment, self.even)


#: Makes the steps of a generation, whose model is ready: from the spec, and the assignment of the first one.
StepsFrom = Callable[[JobSpec, MicroBatchAssignment], StepRunner]


def fetch(spec: JobSpec, state: TrainState, feed: Feed, step: int, index: int) -> Batch:
    """Return micro-batch `index` of step `step` (from 1), with all randomness seeded for it."""
    seed_everything(state.device, derived.training_of(spec).seed, step, index + 1)  # from 1: 0 built the model
    return to_device(feed.micro_batch(step, index), state.device)


def sums_of(spec: JobSpec, state: TrainState, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
    """Return the sums over one held-out batch: `samples` first, then each metric times samples."""
    with autocast(spec.precision, state.device):
        loss, extras = state.task.loss(model, batch)
    means = {"samples": torch.ones_like(loss), "eval_loss": loss} | {f"eval_{name}": value for name, value in extras.items()}
    return {name: len(batch[0]) * mean.double() for name, mean in means.items()}


def upcoming(state: TrainState, first: MicroBatchAssignment, even: MicroBatchAssignment) -> Iterator[BatchPosition]:
    """Yield the micro-batches that a rank will compute: the rest of the step after the committed one, then its share of all others.

    Holds no reference to anything that depends on the world.
    """
    computed = set(state.partial.losses) if state.partial else set()
    step = state.step + 1
    yield from [(step, index) for index in first.own if index not in computed]
    for later in range(step + 1, state.total_steps + 1):
        yield from ((later, index) for index in even.own)


def to_device(batch: Batch, device: torch.device) -> Batch:
    if device.type == "cpu":
        return batch
    return tuple(tensor.to(device, non_blocking=True) for tensor in batch)
