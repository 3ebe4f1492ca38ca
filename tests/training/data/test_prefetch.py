"""Micro-batches computed ahead: the same ones, not too many, and gone with whoever wanted them."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from itertools import count, product
from pathlib import Path

import pytest
import torch
from torch import Tensor

from paceline.training.data.feed import DatasetFeed
from paceline.training.data.prefetch import DEPTH, BatchPosition, Prefetch, ahead
from paceline.training.data.sampler import BatchSplit
from paceline.training.task import Batch

TIMEOUT_SECONDS = 60.0
STEPS, MICRO_BATCHES = 6, 3
PLACES = list(product(range(1, STEPS + 1), range(MICRO_BATCHES)))


class Noisy:
    """Samples with augmentation from the generator."""

    def __len__(self) -> int:
        return 40

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        return indices, torch.randn(len(indices), 5, generator=generator)


class Watched:
    """A feed that tells what it was asked for, and waits for leave."""

    epoch_samples: int | None = None

    def __init__(self, *, open_: bool = True) -> None:
        self.asked: list[BatchPosition] = []
        self.gate = threading.Event()
        self._news = threading.Condition()
        if open_:
            self.gate.set()

    def micro_batch(self, step: int, index: int) -> Batch:
        with self._news:
            self.asked.append((step, index))
            self._news.notify_all()
        assert self.gate.wait(TIMEOUT_SECONDS)
        if (step, index) == (2, 1):
            raise KeyError("this sample is broken")
        return (torch.tensor([step, index]),)

    def sample_ids(self, step: int, index: int) -> list[int]:
        return []

    def until_asked(self, times: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: len(self.asked) >= times, TIMEOUT_SECONDS), self.asked


def endless() -> Iterator[BatchPosition]:
    return ((step, index) for step in count(1) for index in range(MICRO_BATCHES))


@pytest.mark.parametrize("threads", [1, 4])
def test_the_numbers_are_the_same_to_the_last_bit(threads: int) -> None:
    feed = DatasetFeed(Noisy(), 3, BatchSplit(8, 3))
    worked_ahead = ahead(feed, iter(PLACES), threads)
    for place in PLACES:
        for mine, plain in zip(worked_ahead.micro_batch(*place), feed.micro_batch(*place), strict=True):
            assert torch.equal(mine, plain)
    assert worked_ahead.epoch_samples == feed.epoch_samples == 40


def test_without_threads_nothing_is_in_between() -> None:
    feed = Watched()
    assert ahead(feed, endless(), 0) is feed


def test_the_next_ones_are_computed_while_one_is_used() -> None:
    feed = Watched()
    worked_ahead = Prefetch(feed, endless(), 2)
    worked_ahead.micro_batch(1, 0)
    feed.until_asked(1 + 2 * DEPTH)  # nobody has asked for these yet
    assert sorted(feed.asked) == list(zip([1] * 3 + [2] * 3, [0, 1, 2] * 2, strict=True))[: 1 + 2 * DEPTH]


def test_no_more_than_a_few_are_computed_ahead() -> None:
    feed = Watched(open_=False)
    worked_ahead = Prefetch(feed, endless(), 2)
    asking = threading.Thread(target=worked_ahead.micro_batch, args=(1, 0))
    asking.start()
    feed.until_asked(2)
    feed.gate.set()
    asking.join(TIMEOUT_SECONDS)
    feed.until_asked(1 + 2 * DEPTH)
    worked_ahead.micro_batch(1, 1)
    feed.until_asked(2 + 2 * DEPTH)
    assert len(feed.asked) == 2 + 2 * DEPTH


def test_what_a_thread_raises_is_raised_where_that_micro_batch_is_asked_for() -> None:
    worked_ahead = Prefetch(Watched(), endless(), 2)
    for place in PLACES[: PLACES.index((2, 1))]:
        worked_ahead.micro_batch(*place)
    with pytest.raises(KeyError, match="this sample is broken") as raised:
        worked_ahead.micro_batch(2, 1)
    assert raised.traceback[-1].path == Path(__file__)  # the traceback shows where it happened
    assert worked_ahead.micro_batch(2, 2)[0].tolist() == [2, 2]


def test_what_is_asked_for_against_the_plan_is_computed_at_once() -> None:
    feed = DatasetFeed(Noisy(), 3, BatchSplit(8, 3))
    worked_ahead = ahead(feed, iter(PLACES), 2)
    assert torch.equal(worked_ahead.micro_batch(5, 1)[1], feed.micro_batch(5, 1)[1])
    assert torch.equal(worked_ahead.micro_batch(1, 0)[1], feed.micro_batch(1, 0)[1])


def test_whoever_forgets_it_is_rid_of_its_threads_and_of_what_waited() -> None:
    feed = Watched(open_=False)
    worked_ahead = Prefetch(feed, endless(), 2)
    before = set(threading.enumerate())
    asking = threading.Thread(target=worked_ahead.micro_batch, args=(1, 0))
    asking.start()
    feed.until_asked(2)
    threads = set(threading.enumerate()) - before - {asking}
    assert len(threads) == 2
    feed.gate.set()
    asking.join(TIMEOUT_SECONDS)
    del asking, worked_ahead
    gc.collect()
    for thread in threads:
        thread.join(TIMEOUT_SECONDS)
        assert not thread.is_alive()
    assert len(feed.asked) <= 1 + 2 * DEPTH
