"""PowerSGD with one rank: what is sent and what is kept of matrices, and of pieces that are none."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paceline.distributed.compression.power_sgd import PowerSgd
from paceline.distributed.reduction import GradientBucket, GradientPiece


class GroupOfOne:
    size = 1

    def sum(self, values: Tensor) -> Tensor:
        return values


def test_a_rank_whose_shard_of_a_parameter_is_empty_sums_the_others() -> None:
    """A head with fewer rows than there are shards: the job ended in its first compressed step, at each restart."""
    group: Any = GroupOfOne()
    pieces = [
        GradientPiece("w", (8, 8), 0, 64),
        GradientPiece("head", (0, 8), 64, 0),
        GradientPiece("bias", (0,), 64, 0, compressible=False),
    ]
    values = torch.outer(torch.arange(8.0), torch.ones(8)).reshape(-1)  # of rank one, so that its factors are all of it
    wanted = values.clone()
    reduction = PowerSgd(group, 2)
    reduction.sum(GradientBucket(values, pieces, step=1))
    reduction.commit()
    torch.testing.assert_close(values, wanted)
    assert reduction.state()["residual"].keys() == {"w"}
