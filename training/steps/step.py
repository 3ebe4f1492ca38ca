"""A step whose micro-batches are computed one after the other: this rank's share of them, and one exchange with the others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from distributed.process_group import Group, SoloGroup
from parallelism.activation_checkpoint import unchanged_buffers
from parallelism.cut.tensor_parallel import plain
from parallelism.data_parallel import Alone, Wrapped
from parallelism.plan import Coordinates, Deal, even_deal
from parallelism.precision import autocast, scaled
from training.spec.job import JobSpec
from training.state import PartialStep, TrainState
from training.steps.news import Agreed, News, Requests
from training.steps.optim import clip_gradients
from training.steps.stepping import StepClock, Stepping, sums_of, to_device
from training.task import Batch, Dataset


class Stepper(Stepping):
    def __init__(self, spec: JobSpec, state: TrainState, group: Group, wrapped: Wrapped, coordinates: Coordinates, first: Deal) -> None:
        super().__init__(spec, state, group, wrapped, coordinates, first)
        self.wrapped = wrapped

    def accumulate(self, partial: PartialStep, clock: StepClock, requests: Requests) -> Agreed:
        self.wrapped.begin_step(self.deal, partial.sums)
        news = News(partial, self.deal.micro_batches, self.coordinates, self.state.device)
        missing = [index for index in self.deal.own if index not in partial.losses]
        short = self.deal.largest - len(self.deal.own) if self.wrapped.in_lockstep else 0
        for index in missing:
            batch = self.fetch(partial.step, index)
            clock.lap("data_seconds")
            final = index == missing[-1] and not short
            with self.wrapped.accumulate(index, final=final):
                loss = self.forward(index, batch)
                news.add(index, loss)
                if final:  # travels while backward computes
                    finish = news.send(self.group, requests)
                self.lap_pass(clock, "forward_seconds")
                scaled(loss, self.state.scale.value).backward()  # type: ignore[no-untyped-call]
            partial.losses[index] = loss.detach()
            self.lap_pass(clock, "backward_seconds")
        for left in reversed(range(short)):
            with self.pass_for_nothing(partial.step, final=left == 0):
                if left == 0:
                    finish = news.send(self.group, requests)
            self.lap_pass(clock, "backward_seconds")
        if not missing and not short:
            finish = news.send(self.group, requests)
        exposed = self.wrapped.finish_step()
        clock.lap("backward_seconds")
        clock.move(exposed, "backward_seconds", "communication_seconds")
        told = finish()
        clock.lap("communication_seconds")
        return news.read(told, self.group.world_size)

    @contextlib.contextmanager
    def pass_for_nothing(self, step: int, *, final: bool) -> Iterator[None]:
        """Others have more micro-batches, and need this rank's part of the parameters for them: any will do, and counts for nothing. Within it: what
        the others do between their forward and their backward."""
        with unchanged_buffers(self.state.task.model), self.wrapped.accumulate(0, final=final):
            loss = self.forward(0, self.fetch(step, 0)) * 0.0
            yield
            loss.backward()  # type: ignore[no-untyped-call]

    def go_through(self, micro_batches: Sequence[int]) -> None:
        stepper = alone(self.spec, self.state)
        for index in micro_batches:
            self.state.begin_step()
            stepper.forward(index, stepper.fetch(1, index)).backward()  # type: ignore[no-untyped-call]
            self.state.rewind()

    def lap_pass(self, clock: StepClock, part: str) -> None:
        """What this rank has only waited within the pass is communication."""
        clock.lap(part)
        clock.move(self.wrapped.waited(), part, "communication_seconds")

    def forward(self, index: int, batch: Batch) -> Tensor:
        """This micro-batch's part of the mean over the global batch, or what this rank has of that."""
        with autocast(self.spec.precision, self.state.device):
            loss, _ = self.state.task.loss(self.wrapped.module, self.wrapped.own_part(batch))
        return plain(loss) * (self.portions.weight(index) / self.coordinates.degrees.context)

    def clip(self, limit: float | None) -> Tensor:
        return clip_gradients(self.state.task.model.parameters(), limit, self.group.lines)

    def sums_of_share(self, held_out: Dataset, batches: Sequence[Tensor]) -> tuple[list[str], Mapping[int, Tensor]]:
        deal = self.coordinates.evaluation_deal(len(batches))
        sums = {number: self.sums_of(held_out, batches[number]) for number in deal.own}
        if not deal.own or (self.wrapped.in_lockstep and len(deal.own) < deal.largest):  # who has no batch must still know the names
            names = list(self.sums_of(held_out, batches[0][:1]))
        else:
            names = list(sums[deal.own[0]])
        spoken = sums if self.coordinates.speaks else {}
        return names, {number: torch.stack(list(values.values())) for number, values in spoken.items()}

    def sums_of(self, held_out: Dataset, indices: Tensor) -> dict[str, Tensor]:
        return sums_of(self.spec, self.state, self.state.task.model, to_device(held_out.batch(indices, None), self.state.device))

    @property
    def whole_model(self) -> nn.Module:
        return self.state.task.model


def alone(spec: JobSpec, state: TrainState) -> Stepper:
    """Of a rank by itself, without the others' knowledge."""
    return Stepper(spec, state, SoloGroup(), Alone(state.task.model), Coordinates(), even_deal(spec.micro_batches, 1))
