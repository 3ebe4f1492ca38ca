"""A step whose loss is bad, and the errors by which it ends a generation. No torch in here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.monitoring.loss_watch import BadLossKind
from paceline.monitoring.sinks import on_the_wire
from paceline.training.errors import TrainingError
from paceline.training.schema.bad_loss import MOST_MICRO_BATCHES, MOST_SAMPLE_IDS, BadLossPolicy


@dataclass(frozen=True)
class BadLossVerdict:
    """A step whose loss is bad, and what becomes of it."""

    kind: BadLossKind
    loss: float
    gradient_norm: float
    limit: float | None  # of a spike
    act: BadLossPolicy
    micro_batches: tuple[int, ...]  # of the step: those that are bad by themselves, or all
    is_news: bool = True
    again: bool = False  # the job has gone back because of this step, which is skipped now

    @property
    def holds_back(self) -> bool:
        """True if the step is not applied."""
        return self.act != "warn"

    @property
    def ends_generation(self) -> bool:
        return self.act in ("stop", "roll_back")

    def event_data(self, step: int, sample_ids: Sequence[int] = ()) -> dict[str, Any]:
        """Return the data of the event `bad_loss`. `sample_ids` are those of the bad micro-batches, where they are known."""
        return {
            "step": step,
            "what": self.kind,
            "act": self.act,
            "again": self.again,
            "loss": on_the_wire(self.loss),
            "gradient_norm": on_the_wire(self.gradient_norm),
            "limit": self.limit,
            "micro_batches": self.micro_batches[:MOST_MICRO_BATCHES],
            "sample_ids": sample_ids[:MOST_SAMPLE_IDS],
            "samples": len(sample_ids),
        }


class BadLossError(TrainingError):
    """The step was not applied, and the state is that of the step before it."""

    def __init__(self, message: str, bad: BadLossVerdict) -> None:
        super().__init__(message)
        self.bad = bad


class LossNotFiniteError(BadLossError):
    """The job's policy is to stop at a loss that is NaN or infinite."""


class LossSpikeError(BadLossError):
    """The job's policy is to stop at a spike of the loss."""


class RollBackError(BadLossError):
    """The job's policy is to go back to the newest checkpoint."""
