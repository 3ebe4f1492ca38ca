"""A reducer whose way of summing changes between steps: what compressed sums have left out is sent, once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from paceline.distributed.abort import GroupAborter
from paceline.distributed.compression.factory import reduction_for
from paceline.distributed.compression.options import CompressionOptions
from paceline.distributed.compression.remainder import WithRemainder
from paceline.distributed.joining import join
from paceline.distributed.reduction import Reduction
from paceline.parallelism.communication.choices import ReductionChoice
from paceline.parallelism.communication.chosen_reducer import ChosenReducer
from paceline.parallelism.communication.pieces import PieceMaker
from paceline.parallelism.communication.reducers import BackendReducer, BackgroundReducer, Reducer
from paceline.training.link import RankPlace
from tests.ranks import run_ranks

TOP_K, EXACT = ReductionChoice("backend", "top_k"), ReductionChoice()
OPTIONS = CompressionOptions("top_k", 0.05, "exact", dense_steps=0)
STEPS = (TOP_K, TOP_K, TOP_K, EXACT, EXACT, TOP_K)


def gradient(rank: int, step: int, shape: torch.Size) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(100 * step + rank))


def summed(world: RankPlace) -> dict[str, Any]:
    group = join(world, GroupAborter(), {"replicate": [list(range(world.world_size))]}, reduces=frozenset({"backend"}))
    groups = group.reduction_groups
    assert groups is not None
    model, step = nn.Linear(40, 30), 0

    def behind(reduction: Reduction) -> Reducer:
        return BackgroundReducer(group, reduction, lambda: PieceMaker(model, ()), lambda: step)

    def make(choice: ReductionChoice) -> Reducer:
        return behind(reduction_for("backend", OPTIONS, groups)) if choice == TOP_K else BackendReducer(group)

    chosen = ChosenReducer(STEPS[0], make, lambda _: behind(WithRemainder(reduction_for("backend", CompressionOptions(), groups))))
    sums, left = [], []
    for step, choice in enumerate(STEPS, start=1):
        chosen.use(choice)
        for parameter in model.parameters():
            parameter.grad = gradient(world.rank, step, parameter.shape)
        chosen.sum(model.parameters())
        chosen.commit()
        sums.append(model.weight.grad.numpy().copy())  # type: ignore[union-attr]
        left.append(sum(float(part.abs().sum()) for part in chosen.state().get("residual", {}).values()))
    return {"sums": sums, "left": left}


def test_nothing_is_lost_where_compression_ends_and_nothing_is_sent_twice() -> None:
    ends = run_ranks(summed, 2)
    shape = torch.Size((30, 40))
    given = np.cumsum([sum(gradient(rank, step, shape) for rank in (0, 1)).numpy() for step in range(1, 6)], axis=0)  # type: ignore[union-attr]
    sent = np.cumsum(ends[0]["sums"], axis=0)
    assert ends[0]["left"][2] > 1.0
    assert np.abs(sent[2] - given[2]).max() > 0.1, "top_k has left something out"
    np.testing.assert_allclose(sent[3], given[3], atol=1e-4, err_msg="the first exact step sends what was left out")
    np.testing.assert_allclose(sent[4], given[4], atol=1e-4)
    assert [ends[0]["left"][place] for place in (3, 4)] == [0, 0]
    assert ends[0]["left"][5] > 0.0
    for mine, others in zip(ends[0]["sums"], ends[1]["sums"], strict=True):
        np.testing.assert_array_equal(mine, others)
