"""One optimizer step: this rank's micro-batches, one exchange with the others, one update. Also the held-out evaluation."""

from __future__ import annotations

import operator
import time
from typing import Protocol

import torch
from torch import Tensor

from distributed.process_group import Group
from monitoring.points import STEP_PARTS
from parallelism.data_parallel import Wrapped
from parallelism.plan import Deal, share
from parallelism.precision import autocast
from parallelism.tree import tree_sum
from training.data.sampler import Sampler, evaluation_indices
from training.optim import clip_gradients, learning_rate, set_learning_rate
from training.spec import JobSpec
from training.state import StepReport, TrainState, seed_everything, training_of
from training.task import Batch, Dataset


class Requests(Protocol):
    """What somebody wants done at the next step boundary that all ranks agree on."""

    @property
    def pause_wanted(self) -> bool: ...
    @property
    def checkpoint_wanted(self) -> bool: ...


class StepClock:
    """Cuts a step's time into parts. Host time: on CUDA, kernels that run behind are paid for where the host waits for them."""

    def __init__(self) -> None:
        self.parts = dict.fromkeys(STEP_PARTS, 0.0)
        self.started = self.now = time.perf_counter()

    def lap(self, part: str) -> None:
        """Everything since the last lap was `part`."""
        before, self.now = self.now, time.perf_counter()
        self.parts[part] += self.now - before

    def move(self, seconds: float, source: str, target: str) -> None:
        self.parts[source] -= seconds
        self.parts[target] += seconds


class Stepper:
    """Steps of one generation: `indices` are this rank's micro-batches of every global batch."""

    def __init__(self, spec: JobSpec, state: TrainState, group: Group, wrapped: Wrapped) -> None:
        self.spec, self.state, self.group, self.wrapped = spec, state, group, wrapped
        self.training = training_of(spec)
        self.indices = Deal(spec.micro_batches, group.rank, group.world_size).own.indices
        self.sampler = Sampler(len(state.task.train), self.training.seed, self.training.global_batch_size, spec.micro_batch_size)

    def run(self, requests: Requests) -> StepReport:
        """The step after `state.step`; commits it."""
        step, clock = self.state.step + 1, StepClock()
        self.state.begin_step()
        rate = learning_rate(self.spec.optimizer.lr, self.spec.schedule, step, self.state.total_steps)
        set_learning_rate(self.state.optimizer, rate)
        clock.lap("optimizer_seconds")
        agreed = self.accumulate(step, clock, requests)
        norm = self.update(clock)
        pause, checkpoint, *losses = agreed.tolist()
        loss = tree_sum(losses, operator.add)
        clock.lap("other_seconds")
        report = StepReport(
            step=step,
            loss=loss,
            gradient_norm=norm,
            learning_rate=rate,
            seconds=clock.now - clock.started,
            parts=clock.parts,
            pause=pause > 0,
            checkpoint=checkpoint > 0,
            time=time.time(),
        )
        self.state.commit(report)
        return report

    def accumulate(self, step: int, clock: StepClock, requests: Requests) -> Tensor:
        """Global gradients, and over all ranks [pauses wanted, checkpoints wanted, each micro-batch's part of the loss]."""
        wanted = [float(requests.pause_wanted), float(requests.checkpoint_wanted)]
        news = torch.tensor(wanted + [0.0] * self.spec.micro_batches, dtype=torch.float64, device=self.state.device)
        losses = news[len(wanted) :]
        for index in self.indices:
            final = index == self.indices[-1]
            batch = self.fetch(step, index)
            clock.lap("data_seconds")
            with self.wrapped.accumulate(final=final):
                loss = self.forward(index, batch)
                losses[index] = loss.detach()
                if final:  # travels while backward computes
                    finish = self.group.start_sum(news)
                clock.lap("forward_seconds")
                loss.backward()  # type: ignore[no-untyped-call]
            clock.lap("backward_seconds")
        clock.move(self.wrapped.exposed_communication(clock.now), "backward_seconds", "communication_seconds")
        agreed = finish()
        clock.lap("communication_seconds")
        return agreed

    def fetch(self, step: int, index: int) -> Batch:
        generator = seed_everything(self.state.device, self.training.seed, step, index + 1)  # from 1: 0 built the model
        batch = self.state.task.train.batch(self.sampler.micro_batch(step, index), generator)
        return to_device(batch, self.state.device)

    def forward(self, index: int, batch: Batch) -> Tensor:
        """This micro-batch's part of the mean over the global batch."""
        with autocast(self.spec.precision, self.state.device):
            loss, _ = self.state.task.loss(self.wrapped.module, batch)
        return loss * (self.sampler.size(index) / self.training.global_batch_size)

    def update(self, clock: StepClock) -> float:
        norm = clip_gradients(self.state.task.model.parameters(), self.training.gradient_clip_norm)
        self.state.optimizer.step()
        self.state.optimizer.zero_grad()
        gradient_norm = norm.item()
        clock.lap("optimizer_seconds")
        return gradient_norm

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Means over the held-out samples, a fixed list of batches shared out over the ranks; the same numbers on every rank and world."""
        held_out, model = self.state.task.evaluation, self.state.task.model
        if held_out is None:
            return {}
        self.wrapped.settle_buffers()
        batches = torch.split(evaluation_indices(len(held_out), self.training.eval_samples), self.spec.micro_batch_size)
        mine = share(len(batches), self.group.rank, self.group.world_size).indices
        model.eval()
        sums = {number: self.sums_of(held_out, batches[number]) for number in mine}
        names = list(sums[mine[0]] if mine else self.sums_of(held_out, batches[0][:1]))  # who has no batch must still know the names
        model.train()
        table = torch.zeros(len(batches), len(names), dtype=torch.float64, device=self.state.device)
        for number, values in sums.items():
            table[number] = torch.stack(list(values.values()))
        samples, *totals = tree_sum(self.group.start_sum(table)().unbind(), torch.add).tolist()
        return {name: total / samples for name, total in zip(names[1:], totals, strict=True)}

    def sums_of(self, held_out: Dataset, indices: Tensor) -> dict[str, Tensor]:
        """Of one batch: `samples` first, then each metric times samples."""
        task, device = self.state.task, self.state.device
        with autocast(self.spec.precision, device):
            loss, extras = task.loss(task.model, to_device(held_out.batch(indices, None), device))
        means = {"samples": torch.ones_like(loss), "eval_loss": loss} | {f"eval_{name}": value for name, value in extras.items()}
        return {name: len(indices) * mean.double() for name, mean in means.items()}


def to_device(batch: Batch, device: torch.device) -> Batch:
    if device.type == "cpu":
        return batch
    return tuple(tensor.to(device, non_blocking=True) for tensor in batch)
