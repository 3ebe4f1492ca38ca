"""What is the same of every optimizer step, however its gradients come about; one update of the parameters, and the held-out evaluation."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from distributed.process_group import Group
from monitoring.points import STEP_PARTS
from parallelism.data_parallel import Prepared
from parallelism.plan import Coordinates, Deal
from parallelism.precision import autocast, unscale_gradients
from parallelism.tree import tree_sum
from training.data.feed import Feed
from training.data.prefetch import Place, ahead
from training.data.sampler import Portions, evaluation_indices
from training.spec.job import JobSpec
from training.state import PartialStep, StepReport, TrainState, seed_everything, training_of
from training.steps.news import Agreed, Requests
from training.steps.optim import set_learning_rates
from training.task import Batch, Dataset


class StepClock:
    """Cuts a step's time into parts. Host time: on CUDA, kernels that run behind are paid for where the host waits for them."""

    def __init__(self) -> None:
        self.parts = dict.fromkeys(STEP_PARTS, 0.0)
        self.started = self.now = time.perf_counter()

    def lap(self, part: str) -> None:
        """Everything since the last lap was `part`."""
        before, self.now = self.now, time.perf_counter()
        self.parts[part] += self.now - before

    def skip(self, seconds: float) -> None:
        """The last `seconds` were no part of the step."""
        self.started += seconds
        self.now += seconds

    def move(self, seconds: float, source: str, target: str) -> None:
        self.parts[source] -= seconds
        self.parts[target] += seconds


class Stepping(ABC):
    """Steps of one generation. The first one may be half done already: `first` deals it out, all others are dealt out evenly."""

    bubble: float | None = None  # of the newest step, measured; None: no pipeline

    def __init__(self, spec: JobSpec, state: TrainState, group: Group, prepared: Prepared, coordinates: Coordinates, first: Deal) -> None:
        self.spec, self.state, self.group, self.prepared, self.coordinates = spec, state, group, prepared, coordinates
        self.training = training_of(spec)
        self.deal, self.even = first, coordinates.deal(spec.micro_batches)
        self.portions = Portions(self.training.global_batch_size, spec.micro_batch_size)
        self.feed = ahead(state.feed, self.upcoming(), self.training.data_workers)

    def run(self, requests: Requests) -> StepReport:
        """The step after `state.step`; commits it."""
        clock, partial = StepClock(), self.state.begin_step()
        state = self.state
        self.group.sent()  # forget what evaluation and saves have sent
        rate = set_learning_rates(state.optimizer, state.peak_rates, self.spec.schedule, partial.step, state.total_steps)
        clock.lap("optimizer_seconds")
        agreed = self.accumulate(partial, clock, requests)
        norm, applied = self.update(clock)
        scale = state.scale.after(partial.step, applied=applied)
        clock.lap("other_seconds")
        report = StepReport(
            step=partial.step,
            loss=agreed.loss,
            gradient_norm=norm,
            learning_rate=rate,
            first_sample=self.portions.first(partial.step),
            samples=self.training.global_batch_size,
            seconds=clock.now - clock.started,
            parts=clock.parts,
            pause=agreed.pause,
            checkpoint=agreed.checkpoint,
            leave=agreed.leave,
            time=time.time(),
            written=agreed.written,
            sent=self.group.sent(),
            bubble=self.bubble,
            scale=scale,
            applied=applied,
        )
        self.state.commit(report)
        self.deal = self.even
        return report

    @abstractmethod
    def accumulate(self, partial: PartialStep, clock: StepClock, requests: Requests) -> Agreed:
        """Global gradients in the model; what this rank computes of them stays in `partial`."""

    @abstractmethod
    def go_through(self, micro_batches: Sequence[int]) -> None:
        """These of step 1, forth and back; leaves nothing but what was compiled for them. Of a model in parts, together with those who have the others."""

    @abstractmethod
    def clip(self, limit: float | None) -> Tensor:
        """The norm of all gradients, before it is cut to `limit`: the same on every rank."""

    @abstractmethod
    def sums_of_share(self, held_out: Dataset, batches: Sequence[Tensor]) -> tuple[list[str], Mapping[int, Tensor]]:
        """(what is evaluated, `samples` first; by the number of the batch its sums, of batches that this rank speaks for). `batches`: indices."""

    @property
    @abstractmethod
    def whole_model(self) -> nn.Module:
        """To be called as one process calls its model; by all ranks together, where they are in lockstep."""

    def fetch(self, step: int, index: int) -> Batch:
        return fetch(self.spec, self.state, self.feed, step, index)

    def update(self, clock: StepClock) -> tuple[float, bool]:
        """(the norm of the gradients before it is cut, whether they were applied). A step whose gradients overflowed leaves nothing in the model,
        nor in its running statistics."""
        state = self.state
        unscale_gradients(state.task.model.parameters(), state.scale.value)
        norm = self.clip(self.training.gradient_clip_norm)
        applied = state.scale.admits(norm)
        if applied:
            state.apply_update()
        else:
            state.rewind()
        gradient_norm = norm.item()
        clock.lap("optimizer_seconds")
        return gradient_norm, applied

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Means over the held-out samples, a fixed list of batches shared out over the ranks; the same numbers on every rank and world."""
        held_out, model = self.state.task.evaluation, self.state.task.model
        if held_out is None:
            return {}
        self.prepared.settle_buffers()
        batches = torch.split(evaluation_indices(len(held_out), self.training.eval_samples), self.spec.micro_batch_size)
        model.eval()
        names, sums = self.sums_of_share(held_out, batches)
        model.train()
        table = torch.zeros(len(batches), len(names), dtype=torch.float64, device=self.state.device)
        for number, values in sums.items():
            table[number] = values
        samples, *totals = tree_sum(self.group.start_sum(table)().unbind(), torch.add).tolist()
        return {name: total / samples for name, total in zip(names[1:], totals, strict=True)}

    def upcoming(self) -> Iterator[Place]:
        """What this rank will fetch, in this order."""
        return upcoming(self.state, self.deal, self.even)


#: Makes the steps of a generation, whose model is ready: from the spec, and the deal of the first one.
StepsFrom = Callable[[JobSpec, Deal], Stepping]


def fetch(spec: JobSpec, state: TrainState, feed: Feed, step: int, index: int) -> Batch:
    """Micro-batch `index` of step `step` (from 1), with all randomness seeded for it."""
    seed_everything(state.device, training_of(spec).seed, step, index + 1)  # from 1: 0 built the model
    return to_device(feed.micro_batch(step, index), state.device)


def sums_of(spec: JobSpec, state: TrainState, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
    """Of one held-out batch: `samples` first, then each metric times samples."""
    with autocast(spec.precision, state.device):
        loss, extras = state.task.loss(model, batch)
    means = {"samples": torch.ones_like(loss), "eval_loss": loss} | {f"eval_{name}": value for name, value in extras.items()}
    return {name: len(batch[0]) * mean.double() for name, mean in means.items()}


def upcoming(state: TrainState, first: Deal, even: Deal) -> Iterator[Place]:
    """What a rank will compute: what is missing of the step after the committed one, then its share of all others. Holds on to nothing
    that depends on the world."""
    kept = set(state.partial.losses) if state.partial else set()
    step = state.step + 1
    yield from [(step, index) for index in first.own if index not in kept]
    for later in range(step + 1, state.total_steps + 1):
        yield from ((later, index) for index in even.own)


def to_device(batch: Batch, device: torch.device) -> Batch:
    if device.type == "cpu":
        return batch
    return tuple(tensor.to(device, non_blocking=True) for tensor in batch)
