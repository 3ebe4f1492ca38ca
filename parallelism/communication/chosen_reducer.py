"""Sums by whatever is chosen at the moment: the choice may change between two steps, and what was left out is not lost by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # documented, and not in its __all__

from paceline.distributed.reduction import ReductionState
from paceline.parallelism.communication.choices import ReductionChoice
from paceline.parallelism.communication.reducers import Reducer


class ChosenReducer:
    """A `Reducer` over those of the choices. `make`: returns the reducer of a choice. `flushing`: returns an exact one by the same algorithm that first
    sends what compressed sums have left out; it is used for one step.
    """

    def __init__(
        self, choice: ReductionChoice, make: Callable[[ReductionChoice], Reducer], flushing: Callable[[ReductionChoice], Reducer]
    ) -> None:
        self.choice = choice
        self._make, self._flushing = make, flushing
        self._current = make(choice)
        self._flushes = False

    @property
    def bucket_mb(self) -> float | None:
        return self._current.bucket_mb

    def use(self, choice: ReductionChoice) -> None:
        """Sum by `choice` from the next step on. Every rank changes at the same step."""
        if choice != self.choice:
            left_out = self._current.state()
            self.choice = choice
            self._set(left_out)

    def _set(self, left_out: ReductionState) -> None:
        self._flushes = not self.choice.is_lossy and any(left_out.values())
        self._current = self._flushing(self.choice) if self._flushes else self._make(self.choice)
        self._current.load_state(left_out)

    def start(self, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        return self._current.start(bucket)

    def sum(self, parameters: Iterable[nn.Parameter]) -> None:
        self._current.sum(parameters)

    def commit(self) -> None:
        self._current.commit()
        if self._flushes:
            self._set({})

    def state(self) -> ReductionState:
        return self._current.state()

    def load_state(self, state: ReductionState) -> None:
        self._set(state)
