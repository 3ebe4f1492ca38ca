"""One holder at a time; a failing step is tried again; a stop ends the loop."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest

from paceline.api.core.context import Services
from paceline.api.core.uptime import Uptime
from paceline.api.loops import lease_loop
from paceline.api.loops.lease_loop import LEASE_SECONDS, LeaseLoop, run_until_stopped
from paceline.db.models.leases import LeaseRow
from paceline.db.repositories import leases
from tests.factories import START

WAIT_SECONDS = 10.0


@dataclass
class Steps:
    """Counts, and fails as often as it is told to."""

    failures: int = 0
    taken: list[datetime] = field(default_factory=list)
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, now: datetime) -> None:
        self.taken.append(now)
        self.reached.set()
        if len(self.taken) <= self.failures:
            raise RuntimeError("planned")


def loop(services: Services, steps: Steps, holder: str = "one", interval_seconds: float = 3600.0) -> LeaseLoop:
    return LeaseLoop("test", services, steps, interval_seconds, ("topic",), holder=holder)


async def test_a_lease_has_one_holder_until_it_expires(services: Services) -> None:
    expires = START + timedelta(seconds=10)
    async with services.write() as session:
        assert await leases.take(session, "x", "one", START, expires)
        assert not await leases.take(session, "x", "two", START, expires)
        assert await leases.take(session, "x", "one", START, expires), "renewed"
        assert await leases.take(session, "x", "two", expires, expires + timedelta(seconds=10)), "expired"
        assert not await leases.take(session, "x", "one", expires, expires + timedelta(seconds=10))
        assert await leases.take(session, "x", "one", expires, expires, by_force=True)


@pytest.mark.parametrize(("interval_seconds", "term_seconds"), [(1.0, LEASE_SECONDS), (30.0, 45.0)])
async def test_only_the_holder_steps(services: Services, interval_seconds: float, term_seconds: float) -> None:
    one, two = loop(services, Steps(), "one", interval_seconds), loop(services, Steps(), "two", interval_seconds)
    assert await one.step_once(START)
    alone = services.control.is_sqlite
    assert await two.step_once(START) is alone, "on SQLite there is only one process, whose earlier life may have held it"
    assert await two.step_once(START + timedelta(seconds=term_seconds - 1)) is alone, "the holder has until its next turn to renew"
    assert await two.step_once(START + timedelta(seconds=term_seconds + 1))


async def test_a_nudge_wakes_it_and_a_stop_ends_and_releases_it(services: Services) -> None:
    steps, stop = Steps(), asyncio.Event()
    running = asyncio.create_task(run_until_stopped([loop(services, steps)], stop, WAIT_SECONDS))
    async with asyncio.timeout(WAIT_SECONDS):
        await steps.reached.wait()
        steps.reached.clear()
        services.bus.publish("topic")
        await steps.reached.wait()
        stop.set()
        await running
    assert len(steps.taken) == 2
    async with services.control.read() as session:
        assert await session.get(LeaseRow, "test") is None


async def test_what_its_steps_left_open_is_closed_after_the_last_one(services: Services) -> None:
    steps, stop, closed = Steps(), asyncio.Event(), list[int]()

    async def close() -> None:
        closed.append(len(steps.taken))

    running = asyncio.create_task(run_until_stopped([replace(loop(services, steps), close=close)], stop, WAIT_SECONDS))
    async with asyncio.timeout(WAIT_SECONDS):
        await steps.reached.wait()
        stop.set()
        await running
    assert closed == [len(steps.taken)]


async def test_a_failing_step_is_logged_and_tried_again(services: Services, caplog: pytest.LogCaptureFixture) -> None:
    steps, stop = Steps(failures=1), asyncio.Event()
    with caplog.at_level(logging.CRITICAL):
        running = asyncio.create_task(run_until_stopped([loop(services, steps)], stop, WAIT_SECONDS))
        async with asyncio.timeout(WAIT_SECONDS):
            while len(steps.taken) < 2:
                await steps.reached.wait()
                steps.reached.clear()
            stop.set()
            await running
    assert len(steps.taken) == 2


async def test_a_step_that_hangs_is_cut_off_when_stopped(services: Services) -> None:
    started, stop = asyncio.Event(), asyncio.Event()

    async def hang(now: datetime) -> None:
        started.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(run_until_stopped([LeaseLoop("hang", services, hang, 1.0)], stop, 0.05))
    async with asyncio.timeout(WAIT_SECONDS):
        await started.wait()
        stop.set()
        await running


@pytest.mark.parametrize("settings", ["postgresql"], indirect=True)
@pytest.mark.parametrize("waits_for_agents", [False, True], ids=["deliveries", "launches"])
async def test_a_slow_loop_that_changes_hands_gives_no_job_a_fresh_term(services: Services, waits_for_agents: bool) -> None:
    """Each time that a webhook hung another replica took the deliveries over, and jobs that could not start kept their slots for as long."""
    scheduler = LeaseLoop("scheduler", services, Steps(), 1.0, waits_for_agents=True)
    mine, theirs = (
        LeaseLoop("slow", each, Steps(), 1.0, waits_for_agents=waits_for_agents) for each in (services, replace(services, uptime=Uptime()))
    )
    for second in range(16):
        now = START + timedelta(seconds=second)
        assert await scheduler.step_once(now)
        if second % 7 == 0:
            turn, other = (theirs, mine) if second == 7 else (mine, theirs)
            assert await turn.step_once(now)
            assert not await other.step_once(now)
    assert services.uptime.since is not None
    assert (services.uptime.since - START > timedelta(seconds=13)) is waits_for_agents


async def test_a_lease_that_is_long_in_coming_is_no_step_of_the_clock(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn was noted at the time from before the wait, and every deadline of every job began anew."""
    seconds = 0.0

    class SlowLease(LeaseLoop):
        async def _hold_lease(self, now: datetime) -> bool:
            nonlocal seconds
            for _ in range(4):
                seconds += 1.0
                services.uptime.note(START + timedelta(seconds=seconds))  # another loop's turn
            return await super()._hold_lease(now)

    monkeypatch.setattr(lease_loop, "time", SimpleNamespace(monotonic=lambda: seconds))
    services.uptime.note(START)
    assert await SlowLease("slow", services, Steps(), 1.0).step_once(START)
    services.uptime.note(START + timedelta(seconds=seconds + 0.5))
    assert services.uptime.since == START


@pytest.mark.parametrize("settings", ["postgresql"], indirect=True)
async def test_a_lease_is_renewed_though_the_clock_was_set_back(services: Services) -> None:
    """It was renewed no more until the old time had come again, and another replica took it over."""
    one, two = loop(services, Steps(), "one", interval_seconds=1.0), loop(services, Steps(), "two", interval_seconds=1.0)
    assert await one.step_once(START)
    set_back = START - timedelta(hours=2)
    assert await one.step_once(set_back)
    assert not await two.step_once(set_back + timedelta(seconds=1))
    assert await two.step_once(set_back + timedelta(seconds=LEASE_SECONDS + 1))


@pytest.mark.parametrize(
    ("interval_seconds", "now", "seconds"),
    [(1.0, 7.25, 0.75), (2.0, 7.25, 0.75), (1.0, 7.0, 1.0), (1.0, 6.999, 1.001), (2.0, 7.75, 2.25), (30.0, 7.25, 30.0)],
)
def test_loops_with_short_intervals_wake_up_together(interval_seconds: float, now: float, seconds: float) -> None:
    assert lease_loop.seconds_to_turn(interval_seconds, now) == pytest.approx(seconds)
