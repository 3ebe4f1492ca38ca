"""Which losses are bad: NaN, infinite, or a spike. Pure, and the same for a trainer's steps and for the points of a script.

A loss is a spike when it is above

    median + SPREADS * max(q90 - median, LEAST_SPREAD * |median|)

of the last WINDOW good losses; q90 is their 90th percentile. The upper spread is used in place of the standard deviation or of the median
absolute deviation, since losses are skewed: near the end of a run most are close to zero and a few samples are still hard. Of normally
distributed losses the limit is ten standard deviations above the median. A falling curve only widens the spread. Nothing is a spike before WARM_UP
losses are known. Spikes stay out of the window, so that a second one is measured like the first; NEW_LEVEL of them in a row are no spikes
but a new level, and the window begins anew.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import Literal

BadLossKind = Literal["not_finite", "spike"]

WINDOW = 64
WARM_UP = 32
SPREADS = 8.0
#: As a share of the median: losses that hardly vary may still rise by a fifth.
LEAST_SPREAD = 0.025
NEW_LEVEL = 20
UPPER_QUANTILE = 0.9


@dataclass(frozen=True)
class LossWatch:
    """Statistics of the losses so far, by which the next loss is judged. A value: equal losses make equal watches, on every rank."""

    losses: tuple[float, ...] = ()  # the newest good ones, oldest first
    spikes: int = 0  # in a row, up to the newest loss
    not_finite: int = 0  # the same of losses that are NaN or infinite
    told_spike: int | None = None  # the step of the newest one that was told
    told_not_finite: int | None = None

    @property
    def limit(self) -> float | None:
        """Losses above it are spikes. None: too few are known."""
        if len(self.losses) < WARM_UP:
            return None
        ordered = sorted(self.losses)
        median = statistics.median(ordered)
        upper = ordered[int(UPPER_QUANTILE * (len(ordered) - 1))]
        return median + SPREADS * max(upper - median, LEAST_SPREAD * abs(median))

    def kind_of(self, loss: float) -> BadLossKind | None:
        """Classify a loss by the losses before it; None if it is good."""
        if not math.isfinite(loss):
            return "not_finite"
        limit = self.limit
        return "spike" if limit is not None and loss > limit else None

    def is_news(self, kind: BadLossKind, step: int) -> bool:
        """Return whether a bad loss of this step is worth an event: the first in a row, and one of a kind per WINDOW steps at most."""
        in_a_row, told = (self.spikes, self.told_spike) if kind == "spike" else (self.not_finite, self.told_not_finite)
        return in_a_row == 0 and (told is None or step >= told + WINDOW)

    def after(self, step: int, loss: float, kind: BadLossKind | None) -> LossWatch:
        """Return the statistics that include the loss of this step. `kind` is the result of `kind_of`, or of a trainer, which sees the
        gradients too."""
        if kind is None:
            return replace(self, losses=(*self.losses[1 - WINDOW :], loss), spikes=0, not_finite=0)
        is_news = self.is_news(kind, step)
        if kind == "not_finite":
            return replace(self, not_finite=self.not_finite + 1, spikes=0, told_not_finite=step if is_news else self.told_not_finite)
        told = step if is_news else self.told_spike
        if self.spikes + 1 == NEW_LEVEL:
            return replace(self, losses=(), spikes=0, not_finite=0, told_spike=told)
        return replace(self, spikes=self.spikes + 1, not_finite=0, told_spike=told)
