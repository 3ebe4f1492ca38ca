"""Sums of gradients in sixteen bits: half the bytes, rounded once on each rank and once in each addition."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist

from paceline.distributed.axis_groups import AxisGroup
from paceline.distributed.reduction import ExactReduction, GradientBucket

#: Sums of fp16 stay below this, a power of two under its largest number (65504).
FP16_ROOM = 32768.0


class Bfloat16Sum(ExactReduction):
    """The backend's sum in bf16, which has the range of fp32 and 8 bits of precision."""

    def __init__(self, group: AxisGroup) -> None:
        self._group = group

    def sum(self, bucket: GradientBucket) -> None:
        bucket.values.copy_(self._group.sum(bucket.values.to(torch.bfloat16)))


class Float16Sum(ExactReduction):
    """The backend's sum in fp16, which has 11 bits of precision, scaled by a power of two so that no sum can leave its range.

    Where a rank's gradients are not finite they are summed as they are.
    """

    def __init__(self, group: AxisGroup) -> None:
        self._group = group

    def sum(self, bucket: GradientBucket) -> None:
        if not bucket.values.numel():
            return
        own = bucket.values.abs().amax().float()
        own = own if torch.isfinite(own) else torch.full_like(own, math.inf)  # gloo's maximum of NaN and a number may be the number
        most = float(self._group.all_reduce(own.view(1), dist.ReduceOp.MAX))
        if not math.isfinite(most):
            self._group.sum(bucket.values)
            return
        scale = 2.0 ** math.floor(math.log2(FP16_ROOM / (self._group.size * most))) if most else 1.0
        scale = min(scale, 2.0**120)  # of values that are all next to nothing
        bucket.values.copy_(self._group.sum((bucket.values.float() * scale).to(torch.float16)).float() / scale)
