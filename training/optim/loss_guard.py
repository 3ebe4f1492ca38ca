"""What a bad loss makes of its step: the job's policy, asked before the update, and the same answer on every rank.

A guard is a value, like the loss scale: a part of the state that ranks agree on, save and send. It decides by the loss of the whole step and the
norm of all gradients, which every rank has alike. In fp16 gradients overflow in the normal course of things, so that their norm is the loss
scale's affair. No torch in here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from paceline.monitoring.loss_watch import BadLossKind, LossWatch
from paceline.training.optim.bad_loss import BadLossError, BadLossVerdict, LossNotFiniteError, LossSpikeError, RollBackError
from paceline.training.optim.loss_scale import Scalar
from paceline.training.schema.bad_loss import BadLossPolicy, what_is_bad, what_is_done

#: Updates that are skipped for a bad loss in a row. Then it is not the batch that is bad.
MOST_SKIPS_IN_A_ROW = 20


class BadLossPolicies(Protocol):
    """The part of `fault_tolerance` that says how to treat a bad loss."""

    @property
    def on_nan(self) -> BadLossPolicy: ...
    @property
    def on_spike(self) -> BadLossPolicy: ...


@dataclass(frozen=True)
class MeasuredStep:
    """A step before its update; the same on every rank."""

    step: int
    loss: float  # mean over the global batch
    losses: Sequence[float]  # by micro-batch: its part of the mean over the global batch
    weights: Sequence[float]  # by micro-batch: that part of the samples
    norm: Scalar  # of all gradients. Looked at only where it matters: on a GPU that waits for it
    gradients_count: bool  # False: in fp16 the loss scale sees to gradients that overflow

    def suspects(self, limit: float | None) -> tuple[int, ...]:
        """The micro-batches whose own loss is not finite, or above `limit`; all of them where none is."""
        own = [loss / weight for loss, weight in zip(self.losses, self.weights, strict=True)]
        found = [index for index, loss in enumerate(own) if not math.isfinite(loss) or (limit is not None and loss > limit)]
        return tuple(found or range(len(own)))


@dataclass(frozen=True)
class LossGuard:
    watch: LossWatch = field(default_factory=LossWatch)
    skipped_updates: int = 0  # since step 0, beside those of the loss scale
    skips_in_a_row: int = 0

    def judge(self, found: MeasuredStep, policy: BadLossPolicies, left_out: BadLossKind | None) -> BadLossVerdict | None:
        """Judge a measured step; None if its loss is good. `left_out` is the reason if the job has gone back from this step before."""
        loss, step = found.loss, found.step
        kind = self.watch.kind_of(loss)
        if policy.on_nan != "warn" and found.gradients_count and not math.isfinite(found.norm.item()):
            kind = "not_finite"
        kind = kind or left_out
        if kind is None:
            return None
        limit = self.watch.limit if kind == "spike" else None
        act = "skip_update" if left_out else policy.on_nan if kind == "not_finite" else policy.on_spike
        if act == "skip_update" and self.skips_in_a_row >= MOST_SKIPS_IN_A_ROW:
            act = "stop"
        return BadLossVerdict(
            kind,
            loss,
            found.norm.item(),
            limit,
            act,
            found.suspects(limit),
            is_news=act != "warn" or self.watch.is_news(kind, step),
            again=left_out is not None,
        )

    def after(self, step: int, loss: float, bad: BadLossVerdict | None) -> LossGuard:
        """Return the guard's state once the step is committed."""
        watch = self.watch.after(step, loss, bad.kind if bad else None)
        if bad is None or bad.act == "warn":
            return replace(self, watch=watch, skips_in_a_row=0)
        return replace(self, watch=watch, skipped_updates=self.skipped_updates + 1, skips_in_a_row=self.skips_in_a_row + 1)

    def error(self, step: int, bad: BadLossVerdict) -> BadLossError:
        """Return the error that ends the step before its update, on every rank. `bad.act` is to stop or to roll back."""
        what = what_is_bad(bad.kind, step, bad.loss, bad.limit)
        if bad.act == "roll_back":
            return RollBackError(f"{what}: {what_is_done(bad.kind, bad.act)}", bad)
        tried = f" after {self.skips_in_a_row} skipped updates in a row" if self.skips_in_a_row else ""
        error = LossNotFiniteError if bad.kind == "not_finite" else LossSpikeError
        return error(f"{what}: the job is stopped before the update{tried}; look at the samples of the step, or lower optimizer.lr", bad)
