"""Exact sums that begin with what compressed ones have left out: nothing is lost where a job stops compressing."""

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
        self._residuals.put(torch.zeros(bucket.values.numel()), bucket.pieces)
        self._exact.sum(bucket)

    def commit(self) -> None:
        self._residuals.commit()

    def state(self) -> ReductionState:
        return {RESIDUAL: self._residuals.by_parameter()}

    def load_state(self, state: ReductionState) -> None:
        self._residuals.load(state.get(RESIDUAL, {}))
