"""One optimizer step: this rank's micro-batches, one exchange with the others, one update. Also the held-out evaluation."""

from __future__ import annotations

import time
from typing import Protocol

import torch
from torch import Tensor

from distributed.process_group import Group
from monitoring.points import STEP_PARTS
from parallelism.data_parallel import Wrapped, average_buffers
from parallelism.plan import Share, share
from parallelism.precision import autocast
from training.data.sampler import Sampler, evaluation_indices
from training.optim import clip_gradients, learning_rate, set_learning_rate
from training.spec import JobSpec
from training.state import StepReport, TrainState, seed_everything, training_of
from training.task import Batch


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
    """Steps of one generation: `share` of the micro-batches of every global batch is this rank's."""

    def __init__(self, spec: JobSpec, state: TrainState, group: Group, wrapped: Wrapped) -> None:
        self.spec, self.state, self.group, self.wrapped = spec, state, group, wrapped
        self.training = training_of(spec)
        self.share: Share = share(spec.micro_batches, group.rank, group.world_size)
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
        loss, pause, checkpoint = agreed.tolist()
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
        """Global gradients, and [mean loss, pauses wanted, checkpoints wanted] over all ranks."""
        wanted = [0.0, float(requests.pause_wanted), float(requests.checkpoint_wanted)]
        news = torch.tensor(wanted, dtype=torch.float64, device=self.state.device)
        for index in self.share.indices:
            final = index == self.share.indices[-1]
            batch = self.fetch(step, index)
            clock.lap("data_seconds")
            with self.wrapped.accumulate(final=final):
                loss = self.forward(batch)
                news[0] += loss.detach()
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

    def forward(self, batch: Batch) -> Tensor:
        """This micro-batch's part of the mean over the global batch."""
        with autocast(self.spec.precision, self.state.device):
            loss, _ = self.state.task.loss(self.wrapped.module, batch)
        return loss / self.spec.micro_batches

    def update(self, clock: StepClock) -> float:
        norm = clip_gradients(self.state.task.model.parameters(), self.training.gradient_clip_norm)
        self.state.optimizer.step()
        self.state.optimizer.zero_grad()
        gradient_norm = norm.item()
        clock.lap("optimizer_seconds")
        return gradient_norm

    def evaluate(self) -> dict[str, float]:
        """Means over the held-out samples, shared out over the ranks; the same numbers on every rank."""
        held_out, model = self.state.task.evaluation, self.state.task.model
        if held_out is None:
            return {}
        average_buffers(model, self.group.world_size, self.group.sum)
        indices = evaluation_indices(len(held_out), self.training.eval_samples)
        mine = share(len(indices), self.group.rank, self.group.world_size)
        model.eval()
        totals = self.sum_losses(indices[mine.first : mine.first + mine.count])
        model.train()
        names, values = list(totals), torch.stack(list(totals.values()))
        samples, *sums = self.group.start_sum(values)().tolist()
        return {name: total / samples for name, total in zip(names[1:], sums, strict=True)}

    @torch.no_grad()
    def sum_losses(self, indices: Tensor) -> dict[str, Tensor]:
        """Sums over `indices`: `samples` first, then each metric. A rank without samples adds zeros under the same names."""
        task, device = self.state.task, self.state.device
        assert task.evaluation is not None
        totals: dict[str, Tensor] = {}
        chunks = torch.split(indices, self.spec.micro_batch_size) if len(indices) else (torch.zeros(1, dtype=torch.int64),)
        for chunk in chunks:
            weight = float(min(len(chunk), len(indices)))
            with autocast(self.spec.precision, device):
                loss, extras = task.loss(task.model, to_device(task.evaluation.batch(chunk, None), device))
            values = {"samples": torch.ones_like(loss), "eval_loss": loss} | {f"eval_{name}": value for name, value in extras.items()}
            for name, value in values.items():
                totals[name] = totals.get(name, torch.zeros((), dtype=torch.float64, device=device)) + weight * value.double()
        return totals


def to_device(batch: Batch, device: torch.device) -> Batch:
    if device.type == "cpu":
        return batch
    return tuple(tensor.to(device, non_blocking=True) for tensor in batch)
