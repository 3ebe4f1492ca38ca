"""One optimizer step: this rank's micro-batches, one exchange with the others, one update. Also the held-out evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from distributed.process_group import Group
from monitoring.points import STEP_PARTS
from parallelism.activation_checkpoint import unchanged_buffers
from parallelism.data_parallel import Wrapped
from parallelism.plan import Deal, even_deal, share
from parallelism.precision import autocast
from parallelism.tree import tree_sum
from training.data.prefetch import Place, ahead
from training.data.sampler import Portions, evaluation_indices
from training.news import Agreed, News, Requests
from training.optim import clip_gradients, set_learning_rates
from training.spec import JobSpec
from training.state import PartialStep, StepReport, TrainState, seed_everything, training_of
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

    def move(self, seconds: float, source: str, target: str) -> None:
        self.parts[source] -= seconds
        self.parts[target] += seconds


class Stepper:
    """Steps of one generation. The first one may be half done already: `first` deals it out, all others are dealt out evenly."""

    def __init__(self, spec: JobSpec, state: TrainState, group: Group, wrapped: Wrapped, first: Deal) -> None:
        self.spec, self.state, self.group, self.wrapped = spec, state, group, wrapped
        self.training = training_of(spec)
        self.deal, self.even = first, even_deal(spec.micro_batches, group.world_size, group.rank)
        self.portions = Portions(self.training.global_batch_size, spec.micro_batch_size)
        self.feed = ahead(state.feed, upcoming(state, first, self.even), self.training.data_workers)

    def run(self, requests: Requests) -> StepReport:
        """The step after `state.step`; commits it."""
        clock, partial = StepClock(), self.state.begin_step()
        state = self.state
        rate = set_learning_rates(state.optimizer, state.peak_rates, self.spec.schedule, partial.step, state.total_steps)
        clock.lap("optimizer_seconds")
        agreed = self.accumulate(partial, clock, requests)
        norm = self.update(clock)
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
        )
        self.state.commit(report)
        self.deal = self.even
        return report

    def accumulate(self, partial: PartialStep, clock: StepClock, requests: Requests) -> Agreed:
        """Global gradients in the model; what this rank computes of them stays in `partial`."""
        self.wrapped.begin_step(self.deal, partial.sums)
        news = News(partial, self.deal.micro_batches, self.state.device)
        missing = [index for index in self.deal.own if index not in partial.losses]
        one_short = self.wrapped.in_lockstep and len(self.deal.own) < self.deal.largest
        for index in missing:
            batch = self.fetch(partial.step, index)
            clock.lap("data_seconds")
            final = index == missing[-1] and not one_short
            with self.wrapped.accumulate(index, final=final):
                loss = self.forward(index, batch)
                news.add(index, loss)
                if final:  # travels while backward computes
                    finish = news.send(self.group, requests)
                self.lap_pass(clock, "forward_seconds")
                loss.backward()  # type: ignore[no-untyped-call]
            partial.losses[index] = loss.detach()
            self.lap_pass(clock, "backward_seconds")
        if one_short:
            finish = self.pass_for_nothing(partial.step, lambda: news.send(self.group, requests))
            self.lap_pass(clock, "backward_seconds")
        elif not missing:
            finish = news.send(self.group, requests)
        exposed = self.wrapped.finish_step()
        clock.lap("backward_seconds")
        clock.move(exposed, "backward_seconds", "communication_seconds")
        told = finish()
        clock.lap("communication_seconds")
        return news.read(told, self.group.world_size)

    def pass_for_nothing(self, step: int, send: Callable[[], Callable[[], Tensor]]) -> Callable[[], Tensor]:
        """Others have one micro-batch more, and need this rank's part of the parameters for it: any micro-batch will do, and counts for nothing."""
        with unchanged_buffers(self.state.task.model):
            loss = self.forward(0, self.fetch(step, 0)) * 0.0
            finish = send()  # in the order of the others
            loss.backward()  # type: ignore[no-untyped-call]
        return finish

    def lap_pass(self, clock: StepClock, part: str) -> None:
        """What this rank has only waited within the pass is communication."""
        clock.lap(part)
        clock.move(self.wrapped.waited(), part, "communication_seconds")

    def fetch(self, step: int, index: int) -> Batch:
        seed_everything(self.state.device, self.training.seed, step, index + 1)  # from 1: 0 built the model
        return to_device(self.feed.micro_batch(step, index), self.state.device)

    def forward(self, index: int, batch: Batch) -> Tensor:
        """This micro-batch's part of the mean over the global batch."""
        with autocast(self.spec.precision, self.state.device):
            loss, _ = self.state.task.loss(self.wrapped.module, batch)
        return loss * (self.portions.size(index) / self.training.global_batch_size)

    def update(self, clock: StepClock) -> float:
        norm = clip_gradients(self.state.task.model.parameters(), self.training.gradient_clip_norm, self.wrapped.whole_norm)
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
        mine = share(len(batches), self.group.rank, self.group.world_size)
        model.eval()
        sums = {number: self.sums_of(held_out, batches[number]) for number in mine}
        largest = len(share(len(batches), 0, self.group.world_size))
        if not mine or (self.wrapped.in_lockstep and len(mine) < largest):  # who has no batch must still know the names
            names = list(self.sums_of(held_out, batches[0][:1]))
        else:
            names = list(sums[mine[0]])
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


def upcoming(state: TrainState, first: Deal, even: Deal) -> Iterator[Place]:
    """What this rank will compute: what is missing of the step after the committed one, then its share of all others. Holds on to nothing
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
