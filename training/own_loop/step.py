"""One update: the gradients of some batches added up over all ranks, and one step of the user's optimizer."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from paceline.distributed.process_group import Group
from paceline.parallelism.plan import assign_evenly
from paceline.parallelism.precision import autocast, scaled, unscale_gradients
from paceline.parallelism.running_statistics import restore_buffers
from paceline.parallelism.wrapped import Wrapped
from paceline.training.optim.bad_loss import BadLossVerdict
from paceline.training.optim.loss_guard import LossGuard, MeasuredStep
from paceline.training.optim.loss_scale import ReadOnce, Unscaled, loss_scale_for
from paceline.training.optim.optimizers import clip_gradients
from paceline.training.own_loop.batches import Criterion, loss_of, samples_in, to_device
from paceline.training.own_loop.chance import seeded
from paceline.training.own_loop.meter import Update
from paceline.training.own_loop.options import Options
from paceline.training.own_loop.recorders import report_bad_loss
from paceline.training.steps.stepping import StepClock


class OwnLoopStepRunner:
    """`step`: batches that every rank has trained on so far; `pending`: those of the update under way."""

    def __init__(self, options: Options, model: nn.Module, wrapped: Wrapped, group: Group, device: torch.device) -> None:
        self.step = self.pending = 0
        self.scale = loss_scale_for(options.precision)
        self.guard = LossGuard()
        self.loss = torch.zeros(())  # of this rank's newest batch
        self.wrapped = wrapped
        self._options, self._model, self._group, self._device = options, model, group, device
        self._assignment = assign_evenly(options.accumulation * group.world_size, group.world_size, group.rank)
        self._sums = torch.zeros(2, dtype=torch.float64, device=device)  # of the update under way: mean loss, samples
        self._own_part = torch.zeros(())  # this rank's part of that loss
        self._buffers: list[Tensor] = []  # as the update under way found them
        self._finish: Callable[[], Tensor] | None = None  # waits for those of all ranks
        self._clock: StepClock | None = None  # since the update before: what the loader takes is the step's
        group.sent()  # forget how the ranks came to be alike

    def go_on_from(self, step: int, scale: Unscaled, guard: LossGuard, optimizer: torch.optim.Optimizer) -> None:
        """Continue from `step`, dropping batches that are accumulated but not applied."""
        self._clear_gradients(optimizer)
        self.step, self.scale, self.guard, self.pending = step, scale, guard, 0

    @property
    def parts(self) -> Mapping[str, float]:
        """Seconds of the update under way, by part; empty before its first batch."""
        return {} if self._clock is None else self._clock.told_parts(self._group.exposure)

    def add(self, batch: Any, criterion: Criterion | None) -> bool:
        """Gradients of one batch; whether it was an update's last one. Only with that do whole models speak to each other."""
        clock = self._clock = self._clock or StepClock()
        if self.pending == 0:
            self._group.exposure.drop()
            self.wrapped.begin_step(self._assignment, {})
            self._sums = torch.zeros_like(self._sums)
            self._buffers = [buffer.clone() for buffer in self._model.buffers()]
        batch = to_device(batch, self._device)
        clock.lap("data_seconds")
        final = self.pending == self._options.accumulation - 1
        with self.wrapped.accumulate(self.pending, final=final):
            loss = self._forward(batch, criterion)
            if final:
                self._own_part = self._sums[0].clone()
            self._finish = self._group.start_sum(self._sums) if final else None  # travels while backward computes
            self._lap_pass(clock, "forward_seconds")
            scaled(loss, self.scale.value).backward()  # type: ignore[no-untyped-call]
        self._lap_pass(clock, "backward_seconds")
        self.step += 1
        self.pending = 0 if final else self.pending + 1
        return final

    def try_batch(self, batch: Any, criterion: Criterion | None) -> None:
        """Run forward and backward of a batch, to see what they take; `forget_trial` comes next. Between updates only."""
        self.wrapped.begin_step(self._assignment, {})
        self._buffers = [buffer.clone() for buffer in self._model.buffers()]
        with self.wrapped.accumulate(0, final=False):
            self._forward(to_device(batch, self._device), criterion).backward()  # type: ignore[no-untyped-call]

    def forget_trial(self, optimizer: torch.optim.Optimizer) -> None:
        """Drop the gradients of a trial, and put the running statistics back."""
        self._clear_gradients(optimizer)
        restore_buffers(self._model, self._buffers)

    def _forward(self, batch: Any, criterion: Criterion | None) -> Tensor:
        """This batch's part of the mean over all batches of the update."""
        samples = samples_in(batch)
        with seeded(self._device, self._options.seed, self.step, self._group.rank), autocast(self._options.precision, self._device):
            loss = loss_of(self.wrapped.module, batch, criterion)
        self.loss = loss.detach()
        part = loss / self._assignment.micro_batches
        self._sums[0] += part.detach()
        self._sums[1] += samples
        return part

    def update(self, optimizer: torch.optim.Optimizer) -> Update:
        """Update the parameters from the accumulated gradients. An update that overflows in fp16, or whose loss is bad, leaves nothing in the
        model. Raises BadLossError on every rank where a bad loss ends the training."""
        assert self._clock is not None
        assert self._finish is not None
        clock = self._clock
        exposed = self.wrapped.finish_step()
        clock.lap("backward_seconds")
        clock.move(exposed, "backward_seconds", "communication_seconds")
        loss, samples = self._finish().tolist()
        clock.lap_values(self._group.exposure)
        rate = float(optimizer.param_groups[0]["lr"])
        norm, held_back = self._apply(optimizer, loss)
        clock.lap("optimizer_seconds")
        self._clock = StepClock()
        parts = clock.told_parts(self._group.exposure)
        return Update(
            self.step,
            loss,
            norm,
            rate,
            self.scale,
            int(samples),
            clock.now - clock.started,
            parts,
            self._group.sent(),
            held_back,
            self.scale.skipped_updates + self.guard.skipped_updates,
        )

    def _apply(self, optimizer: torch.optim.Optimizer, loss: float) -> tuple[float, bool]:
        """Apply the gradients, unless they overflow in fp16 or the loss is bad. Returns their norm before they are cut, and whether they were
        held back for the loss, or for gradients that are not finite elsewhere than in fp16."""
        unscale_gradients(self._model.parameters(), self.scale.value)
        norm = ReadOnce(clip_gradients(self._model.parameters(), self._options.clip, self._group.axis_groups))
        bad = self._judge(loss, norm)
        held_back = bad is not None and bad.holds_back
        applied = not held_back and self.scale.admits(norm)
        if applied:
            optimizer.step()
        else:
            restore_buffers(self._model, self._buffers)
        self._clear_gradients(optimizer)
        if bad is not None and bad.holds_back:
            self._report(bad)
        else:
            self.scale = self.scale.after(self.step, applied=applied)
        if self._options.judges_losses:
            self.guard = self.guard.after(self.step, loss, bad)
        return norm.item(), held_back

    def _judge(self, loss: float, norm: ReadOnce) -> BadLossVerdict | None:
        """Return why the update is bad, or None. Every rank has the same loss and norm, and so decides alike. With nothing to do about a bad loss
        none is looked for: the coordinator tells of those in the curve."""
        if not self._options.judges_losses:
            return None
        found = MeasuredStep(self.step, loss, (), (), norm, gradients_count=not self.scale.skips_overflows)
        return self.guard.judge(found, self._options, None)

    def _report(self, bad: BadLossVerdict) -> None:
        """Tell of an update that was held back. Raises BadLossError where it ends the training."""
        own = self._own_part.item() * self._group.world_size
        is_own = not math.isfinite(own) or (bad.limit is not None and own > bad.limit)
        report_bad_loss(self.step, bad, self._group.rank, own if is_own else None)
        if bad.ends_generation:
            raise self.guard.error(self.step, bad)

    def _clear_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Clear all gradients: of trainable parameters that the optimizer does not hold they would add up."""
        optimizer.zero_grad()
        self._model.zero_grad()

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """Evaluations and saves lie between steps."""
        began = time.perf_counter()
        with self._group.traffic.uncounted():
            yield
        if self._clock is not None:
            self._clock.skip(time.perf_counter() - began)

    def _lap_pass(self, clock: StepClock, part: str) -> None:
        """Count the time since the last lap as a part, except the time that the rank waited for others: communication."""
        clock.lap(part)
        clock.move(self.wrapped.waited(), part, "communication_seconds")
