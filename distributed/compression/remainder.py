"""Exact sums that begin with what compressed ones have left out: nothing is lost where a job stops compressing, or ranks change their segments."""

from __future__ import annotations

import torch

from paceline.distributed.compression.compressible import RESIDUAL
from paceline.distributed.compression.residuals import Residuals
from paceline.distributed.reduction import GradientBucket, Reduction, ReductionState


class WithRemainder:
    """Adds each rank's residuals to its gradients before `exact` sums them. After the commit of that step nothing is left."""

    def __init__(self, exact: Reduction) -> None:
        self._exact, self._residuals = exact, Residuals()

    def sum(self, bucket: GradientBucket) -> None:
        self._residuals.add_to(bucket.values, bucket.pieces)
        self._residuals.put(torch.zeros_like(bucket.values, dtype=torch.float32), bucket.pieces)
        self._exact.sum(bucket)

    def commit(self) -> None:
        self._residuals.commit()

    def state(self) -> ReductionState:
        return {RESIDUAL: self._residuals.by_parameter()}

    def load_state(self, state: ReductionState) -> None:
        self._residuals.load(state.get(RESIDUAL, {}))


class RemainderFirst:
    """Sums the first step exactly, with what was left out before it, and all later ones by `compressed`.

    For sums in which a rank keeps what is left out of its own segment of each bucket: another world has other segments, and DDP other buckets after its
    first step. What is left out of a segment that has gone to another rank would not be sent any more.
    """

    def __init__(self, exact: Reduction, compressed: Reduction) -> None:
        self._first, self._compressed = WithRemainder(exact), compressed
        self._current: Reduction = self._first

    def sum(self, bucket: GradientBucket) -> None:
        self._current.sum(bucket)

    def commit(self) -> None:
        self._current.commit()
        self._current = self._compressed

    def state(self) -> ReductionState:
        later = self._compressed.state()
        return {**later, **self._first.state()} if self._current is self._first else later

    def load_state(self, state: ReductionState) -> None:
        self._first.load_state(state)
        self._compressed.load_state({kind: of_kind for kind, of_kind in state.items() if kind != RESIDUAL})
        self._current = self._first
