"""The seconds in which communication was in progress while a rank computed."""

from __future__ import annotations

from typing import Any

import pytest
from torch.futures import Future

from paceline.distributed.overlap import Overlap


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_only_time_counts_in_which_something_travels_and_nobody_waits(clock: Clock) -> None:
    overlap, first, second = Overlap(clock), Future[Any](), Future[Any]()
    clock.now = 1.0  # nothing is in progress
    overlap.follow(first)
    clock.now = 3.0
    overlap.follow(second)  # two at a time count once
    clock.now = 7.0
    overlap.set_waiting(True)
    clock.now = 20.0
    overlap.set_waiting(False)
    first.set_result(None)
    clock.now = 21.0
    second.set_result(None)
    clock.now = 30.0
    assert overlap.lap() == 6.0 + 1.0
    assert overlap.lap() == 0.0


def test_who_waits_when_it_begins_overlaps_nothing(clock: Clock) -> None:
    overlap = Overlap(clock)
    overlap.set_waiting(True)
    overlap.follow(Future[Any]())
    clock.now = 1.0
    overlap.set_waiting(False)
    clock.now = 3.0
    assert overlap.lap() == 2.0


def test_a_transfer_that_fails_is_under_way_no_more(clock: Clock) -> None:
    overlap, transfer = Overlap(clock), Future[Any]()
    overlap.follow(transfer)
    clock.now = 1.0
    transfer.set_exception(RuntimeError("the peer is gone"))
    clock.now = 2.0
    assert overlap.lap() == 1.0
