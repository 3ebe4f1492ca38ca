"""Waits of a computation: by the host's clock, and by events in the stream of a GPU, here of one that is played by hand."""

from __future__ import annotations

import pytest
import torch

from paceline.distributed.exposure import EventWaitClock, HostWaitClock, exposure_on
from paceline.training.steps.stepping import StepClock


class Stream:
    """Kernels run one after the other; an event is done once all before it are."""

    def __init__(self) -> None:
        self.queued, self.done, self.computes = 0.0, 0.0, True

    def run(self, milliseconds: float) -> None:
        self.queued += milliseconds

    def synchronize(self) -> None:
        self.done = self.queued

    def exposure(self) -> EventWaitClock:
        return EventWaitClock(lambda: StreamEvent(self), lambda: self.computes)


class StreamEvent:
    def __init__(self, stream: Stream) -> None:
        self._stream, self.at = stream, -1.0

    def record(self) -> None:
        self.at = self._stream.queued

    def query(self) -> bool:
        return 0.0 <= self.at <= self._stream.done

    def elapsed_time(self, end: StreamEvent) -> float:
        assert self.query()
        assert end.query()
        return end.at - self.at


def test_waits_on_a_gpu_are_told_once_its_kernels_have_run_and_only_then() -> None:
    stream = Stream()
    exposure = stream.exposure()
    stream.run(100)  # the backward pass
    mark = exposure.mark()
    stream.run(40)  # waits for the sums
    assert exposure.since(mark) == 0.0, "the host does not know yet"
    stream.run(7)  # the optimizer
    stream.synchronize()
    assert exposure.collect() == pytest.approx(0.040)
    assert exposure.collect() == 0.0, "each wait counts once"


def test_waits_that_lie_within_each_other_count_once() -> None:
    stream = Stream()
    exposure = stream.exposure()
    outer = exposure.mark()
    for _ in range(2):
        inner = exposure.mark()
        stream.run(10)
        exposure.since(inner)
        stream.run(1)
    exposure.since(outer)
    apart = exposure.mark()
    stream.run(5)
    exposure.since(apart)
    stream.synchronize()
    assert exposure.collect() == pytest.approx(0.027)


def test_a_wait_that_the_gpu_is_not_done_with_is_left_out_rather_than_waited_for() -> None:
    stream = Stream()
    exposure = stream.exposure()
    for _ in range(2):
        mark = exposure.mark()
        stream.run(30)
        exposure.since(mark)
        stream.done = 30
    assert exposure.collect() == pytest.approx(0.030)


def test_what_runs_beside_the_computation_and_what_was_before_the_step_do_not_count() -> None:
    stream = Stream()
    exposure = stream.exposure()
    before = exposure.mark()
    stream.run(20)  # an evaluation
    exposure.since(before)
    exposure.drop()
    stream.computes = False  # FSDP gathers in a stream of its own
    beside = exposure.mark()
    stream.run(20)
    exposure.since(beside)
    stream.synchronize()
    assert exposure.collect() == 0.0


def test_kernels_that_the_host_waits_for_are_no_communication_but_for_what_they_waited() -> None:
    stream, clock = Stream(), StepClock()
    exposure = stream.exposure()
    mark = exposure.mark()
    stream.run(0.001)
    exposure.since(mark)
    stream.synchronize()
    clock.now -= 1000.0  # the host has waited for so many seconds, and little beside them on a busy machine
    clock.lap_values(exposure)
    assert clock.parts["communication_seconds"] == pytest.approx(1e-6)
    assert clock.parts["backward_seconds"] == pytest.approx(1000.0, rel=0.1)


def test_the_host_waits_for_other_ranks_and_knows_at_once() -> None:
    exposure, clock = exposure_on(torch.device("cpu")), StepClock()
    assert isinstance(exposure, HostWaitClock)
    assert exposure.since(exposure.mark()) > 0.0
    clock.now -= 1000.0  # beside these, what a busy machine takes is little
    clock.lap_values(exposure)
    assert clock.parts["communication_seconds"] == pytest.approx(1000.0, rel=0.1)
    assert clock.parts["backward_seconds"] == 0.0


def test_waits_that_are_known_in_part_stay_in_backward_and_no_communication_is_told() -> None:
    clock, exposure = StepClock(), Stream().exposure()
    clock.parts |= {"backward_seconds": 3.0, "communication_seconds": 0.25}
    whole = clock.told_parts(exposure)
    assert (whole["backward_seconds"], whole["communication_seconds"]) == (3.0, 0.25)
    exposure.is_whole = False
    told = clock.told_parts(exposure)
    assert (told["backward_seconds"], "communication_seconds" in told) == (3.25, False)
