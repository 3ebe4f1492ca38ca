"""The watchdog by itself: an argument for the clock, nobody to wait for."""

from __future__ import annotations

import random
import socket
import timeit

import pytest

from paceline.distributed.abort import GroupAborter
from paceline.distributed.probes import Endpoint
from paceline.training.link import Moving, Stalled
from paceline.training.timing.activity import Activity
from paceline.training.timing.phase_times import PhaseTimes
from paceline.training.watchdog.watchdog import CONFIRM_SECONDS, IDLE_SECONDS, Watchdog
from tests.distributed.test_probes import silent_machine

HOUR = 3600.0
STEP = 0.25


class Watched:
    """A watchdog whose thread is asleep for good; looks are the test's."""

    def __init__(self, hang_seconds: float | None = None) -> None:
        self.said: list[Stalled | Moving] = []
        self.dog = Watchdog(self.said.append, hang_seconds)
        self.dog.close()
        self.aborter = GroupAborter()
        self.dog.guard(self.aborter, 2, 0)
        self.now = 1000.0
        self.number = 0
        self.step(0.0)

    def step(self, seconds: float) -> None:
        """Finish the present one after `seconds`, looked at as often as the watchdog asks for."""
        ends = self.now + seconds
        while self.now < ends:
            self.now = min(ends, self.now + self.dog.look(self.now))
        self.number += 1
        self.dog.activity.enter("step", self.number, self.now)

    def wait(self, seconds: float) -> None:
        ends = self.now + seconds
        while self.now < ends:
            self.now += self.dog.look(self.now)


@pytest.fixture
def watched() -> Watched:
    found = Watched()
    for _ in range(40):
        found.step(STEP)
    found.said.clear()
    return found


def test_an_hour_of_steps_that_jitter_by_half_raises_no_alarm() -> None:
    watched, source = Watched(), random.Random(11)
    for _ in range(5):
        watched.step(2 * STEP)
    while watched.now < 1000.0 + HOUR:
        watched.step(source.uniform(0.5, 1.5) * STEP)
    assert watched.number > 10_000
    assert watched.said == []


def test_what_takes_too_long_is_said_three_times_and_its_end_once(watched: Watched) -> None:
    watched.aborter.calls.awaited = call = watched.aborter.calls.begin("exchange")
    watched.wait(60)
    stalls = [said for said in watched.said if isinstance(said, Stalled)]
    limit, patience = 2 * STEP + 0.5, 10 * STEP + 30
    assert [round(said.seconds, 1) for said in stalls] == pytest.approx([limit, limit + CONFIRM_SECONDS, patience], abs=0.11)
    assert [said.overdue for said in stalls] == [False, False, True]
    assert stalls[0].waits is not None
    assert stalls[0].waits.number == call.number
    watched.step(0.0)
    watched.wait(IDLE_SECONDS)
    assert isinstance(watched.said[-1], Moving)
    assert len(watched.said) == 4


def test_it_is_said_again_when_it_changes(watched: Watched) -> None:
    watched.wait(5)
    before = len(watched.said)
    watched.aborter.calls.awaited = watched.aborter.calls.begin("exchange")
    watched.wait(6)
    assert len(watched.said) == before + 1
    assert watched.said[-1].phase == "exchange"  # type: ignore[union-attr]


def test_only_a_machine_that_has_answered_before_can_be_missed() -> None:
    """The queue of this server takes one call, and nobody takes it out: the next ones are not answered."""
    with silent_machine("127.0.0.2") as mute, socket.create_server(("127.0.0.3", 0), backlog=0) as soon_mute:
        watched = Watched()
        watched.aborter.host_probes = {1: mute, 2: Endpoint("127.0.0.3", soon_mute.getsockname()[1])}
        for _ in range(40):
            watched.step(STEP)
        watched.aborter.calls.awaited = watched.aborter.calls.begin("exchange")
        watched.wait(5)
    assert [said.unanswered for said in watched.said if isinstance(said, Stalled)] == [(2,), (2,)]


def test_time_in_which_the_whole_process_stood_still_is_nobodys_fault() -> None:
    watched = Watched()
    for _ in range(40):
        watched.step(STEP)
    watched.dog.look(watched.now)
    watched.dog.excuse(30.0)
    watched.dog.look(watched.now + 30.2)
    assert watched.said == []
    watched.dog.look(watched.now + 32.0)
    assert len(watched.said) == 1


def test_what_broke_off_says_nothing_of_the_usual_time(watched: Watched) -> None:
    before = watched.dog.activity.times.limits("step")
    watched.dog.activity.abandon()
    watched.dog.activity.enter("step", 99)
    assert watched.dog.activity.times.limits("step") == before


def test_recording_costs_less_than_a_microsecond_or_few() -> None:
    """A figure, and a bound that only a mistake reaches: a lock, a file, a sort in each step."""
    activity, repeats = Activity(PhaseTimes()), 20_000
    cost = min(timeit.repeat(lambda: activity.enter("step", 1), number=repeats, repeat=5)) / repeats
    assert cost < 20e-6, f"{cost * 1e6:.2f} us"
