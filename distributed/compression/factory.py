"""The reduction that a job's options ask for."""

from __future__ import annotations

from paceline.distributed.axis_groups import AxisGroup
from paceline.distributed.collectives.options import Algorithm
from paceline.distributed.collectives.reductions import HierarchicalSum, RingSum
from paceline.distributed.compression.casts import Bfloat16Sum, Float16Sum
from paceline.distributed.compression.options import LOSSY, CompressionOptions
from paceline.distributed.compression.power_sgd import PowerSgd
from paceline.distributed.compression.remainder import RemainderFirst
from paceline.distributed.compression.top_k import TopK
from paceline.distributed.reduction import BackendSum, GradientBucket, Reduction, ReductionState
from paceline.distributed.reduction_groups import ReductionGroups


def reduction_for(algorithm: Algorithm, options: CompressionOptions, groups: ReductionGroups) -> Reduction:
    """Return the reduction over `groups`. Where there is no hierarchy it is a ring. In a hierarchy only the sums between machines are compressed."""
    if algorithm == "hierarchical" and groups.local is not None and groups.peers is not None:
        exact = BackendSum(groups.peers)
        found = HierarchicalSum(groups.local, _compressed(options, groups.peers, exact))
        return RemainderFirst(HierarchicalSum(groups.local, exact), found) if options.compression in LOSSY else found
    ring = groups.ring if algorithm != "backend" else None
    return _compressed(options, groups.replicas, BackendSum(groups.replicas) if ring is None else RingSum(ring))


def _compressed(options: CompressionOptions, group: AxisGroup, dense: Reduction) -> Reduction:
    """Return the reduction over one group, of which `dense` sums exactly."""
    match options.compression:
        case "none":
            return dense
        case "bf16":
            return Bfloat16Sum(group)
        case "fp16":
            return Float16Sum(group)
        case "top_k":
            return DenseFirst(TopK(group, options.ratio, options.threshold), dense, options.dense_steps)
        case "power_sgd":
            return DenseFirst(PowerSgd(group, options.rank), dense, options.dense_steps)


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
