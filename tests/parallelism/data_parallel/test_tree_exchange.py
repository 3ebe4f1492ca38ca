"""Gradients are exchanged while the last backward computes, or after it: in which order, and with which bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.futures import Future

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.solo_group import SoloGroup
from paceline.parallelism.data_parallel.flat_buffer import LEAST_BUCKET_BYTES, ExchangeBucket
from paceline.parallelism.data_parallel.reproducible import Reproducible
from paceline.parallelism.data_parallel.tree_exchange import TensorGivenTwiceError, TreeExchange
from paceline.parallelism.plan import assign_evenly
from paceline.training.link import RankPlace
from tests.ranks import run_ranks

WIDTH = 520
LAYERS = 3
MICRO_BATCHES = 4


class Always:
    """Not a trial: every step exchanges early, or none does."""

    def __init__(self, early: bool) -> None:
        self.early = early

    def timed(self, seconds: float) -> None:
        """Decide nothing."""


def exchanged(world: RankPlace, early: bool) -> dict[str, Any]:
    """One step: what happened in which order, and the gradients."""
    events: list[str] = []
    start = ExchangeBucket.start

    def noted(bucket: ExchangeBucket) -> Future[None]:
        events.append("sent")
        return start(bucket)

    ExchangeBucket.start = noted  # type: ignore[method-assign, assignment]  # in this rank's process alone
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    group = join(world, GroupAborter())
    wrapped, assignment = Reproducible(model, group), assign_evenly(MICRO_BATCHES, world.world_size, world.rank)
    wrapped.trial = Always(early)
    wrapped.begin_step(assignment, {})
    for index in assignment.own:
        with wrapped.accumulate(index, final=index == assignment.own[-1]):
            inputs = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(index))
            model(inputs).square().mean().backward()
            events.append("backward")
    wrapped.finish_step()
    gradients = [np.asarray(parameter.grad) for parameter in model.parameters()]
    group.barrier_and_leave()
    return {"events": events, "gradients": gradients}


def test_an_early_exchange_sends_buckets_before_backward_returns_and_a_late_one_none_and_the_bits_are_the_same() -> None:
    assert WIDTH * WIDTH * 4 > LEAST_BUCKET_BYTES, "each layer is a bucket"
    early, late = (run_ranks(exchanged, 2, kind) for kind in (True, False))
    assert [end["events"] for end in early] == [["backward", *["sent"] * LAYERS, "backward"]] * 2
    assert [end["events"] for end in late] == [["backward", "backward", *["sent"] * LAYERS]] * 2
    for end in (*early, *late):
        for mine, first in zip(end["gradients"], late[0]["gradients"], strict=True):
            assert mine.tobytes() == first.tobytes()


def test_a_tensor_that_was_sent_is_not_taken_again() -> None:
    """As where a parameter's gradient is accumulated twice: the second would be left out of the sum without a word."""
    exchange = TreeExchange(SoloGroup())
    exchange.begin_step(assign_evenly(1, 1), lambda: [torch.zeros(3), torch.zeros(2)], {})
    exchange.begin_last_leaf(0)
    exchange.put_tensor(1, torch.ones(2))
    with pytest.raises(TensorGivenTwiceError, match="tensor 1 of a micro-batch's gradients was given again"):
        exchange.put_tensor(1, torch.ones(2))
    exchange.end_last_leaf(lambda member: torch.full((3,), 5.0))
    assert [each.tolist() for each in exchange.finish_step()] == [[5.0] * 3, [1.0] * 2]
