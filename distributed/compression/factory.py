"""The reduction that a job's options ask for."""

from __future__ import annotations

from paceline.distributed.axis_groups import AxisGroup
from paceline.distributed.compression.casts import Bfloat16Sum, Float16Sum
from paceline.distributed.compression.options import CompressionOptions
from paceline.distributed.compression.power_sgd import PowerSgd
from paceline.distributed.compression.top_k import TopK
from paceline.distributed.reduction import BackendSum, GradientBucket, Reduction, ReductionState


def reduction_for(options: CompressionOptions, group: AxisGroup) -> Reduction:
    """Return the reduction over `group`."""
    match options.compression:
        case "none":
            return BackendSum(group)
        case "bf16":
            return Bfloat16Sum(group)
        case "fp16":
            return Float16Sum(group)
        case "top_k":
            return DenseFirst(TopK(group, options.ratio, options.threshold), BackendSum(group), options.dense_steps)
        case "power_sgd":
            return DenseFirst(PowerSgd(group, options.rank), BackendSum(group), options.dense_steps)


class DenseFirst:
    """Sums the first steps of a job exactly: gradients are largest then, and what is left out of them is old before it is sent."""

    def __init__(self, compressed: Reduction, dense: Reduction, steps: int) -> None:
        self._compressed, self._dense, self._steps = compressed, dense, steps

    def sum(self, bucket: GradientBucket) -> None:
        (self._dense if bucket.step <= self._steps else self._compressed).sum(bucket)

    def commit(self) -> None:
        self._compressed.commit()

    def state(self) -> ReductionState:
        return self._compressed.state()

    def load_state(self, state: ReductionState) -> None:
        self._compressed.load_state(state)
