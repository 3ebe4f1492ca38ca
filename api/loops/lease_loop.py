"""The one loop: hold a lease, take a step, wait for a nudge or the interval, and start over.

A leased row elects the one process that runs each loop. A holder that stalls loses it; what it still writes after that meets a
compare-and-set, so two holders at once cost work, never truth.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from paceline.api.core.bus import Subscription
from paceline.api.core.context import Services
from paceline.api.core.troubles import retry_seconds
from paceline.db.base import new_id
from paceline.db.repositories import leases
from paceline.monitoring.beats import until_beat

logger = logging.getLogger(__name__)
LEASE_SECONDS = 6.0
#: How many intervals of a slow loop its lease lasts: its holder renews it at its next turn, else every replica would take a turn in each interval.
LEASE_INTERVALS = 1.5
#: Loops with an interval of at most this many seconds take their turns at the same moments: what they ask together costs a question (`due_looks`).
LONGEST_TOGETHER_SECONDS = 2.0
#: After each step a loop rests as long as the step took, and this long at most.
LONGEST_REST_SECONDS = 0.1

Turn = Callable[[datetime], Awaitable[None]]


@dataclass
class LeaseLoop:
    """A loop that holds a lease. `step` is one turn, with the time as its argument; `topics` are the nudges that wake it early.

    `waits_for_agents`: its steps judge by how long agents have been silent. A process that takes such a loop over has not heard them before.
    `close`: ends what its steps have left open, after the last one.
    """

    name: str
    services: Services
    step: Turn
    interval_seconds: float
    topics: tuple[str, ...] = ()
    waits_for_agents: bool = False
    close: Callable[[], Awaitable[None]] | None = None
    holder: str = field(default_factory=new_id)
    _held_until: datetime | None = None
    #: Since the process started; for the exposition.
    failed_steps: int = 0
    _succeeded_at: float = field(default_factory=time.monotonic)
    _failures: int = 0
    _stopping: bool = False
    _wake: Subscription = field(default_factory=Subscription)

    async def run(self) -> None:
        """Run until `stop` is called."""
        with self.services.bus.subscribe(*self.topics) as self._wake:
            while not self._stopping:
                began = time.monotonic()
                seconds = await self._take_turn()
                # Nudged without end, it takes half of the time, and its next step finds more to do at once.
                await asyncio.sleep(min(time.monotonic() - began, LONGEST_REST_SECONDS))
                await self._wake.wait(seconds)
        if self.close is not None:
            await self.close()
        await self._release()

    def stop(self) -> None:
        self._stopping = True
        self._wake.nudge()

    async def step_once(self, now: datetime) -> bool:
        """Take one step, if the lease is ours."""
        led, began = self.leads, time.monotonic()
        leads = await self._hold_lease(now)  # may take seconds, in which other loops have noted later turns
        noted_at = now + timedelta(seconds=time.monotonic() - began)
        self.services.uptime.note(noted_at, anew=self.waits_for_agents and leads and not led)
        if not leads:
            return False
        await self.step(now)
        self._succeeded_at = time.monotonic()
        return True

    @property
    def leads(self) -> bool:
        return self._held_until is not None

    def seconds_since_success(self) -> float:
        """Seconds since the last step that went well, or else since the loop was made."""
        return time.monotonic() - self._succeeded_at

    async def _take_turn(self) -> float:
        """Take a turn. Returns the seconds until the next one."""
        try:
            await self.step_once(self.services.now())
        except Exception:
            self._failures += 1
            self.failed_steps += 1
            self.services.troubles.note_loop(self.name, self._failures)
            logger.exception("a step of the %s loop failed %d time(s) in a row; it will be tried again", self.name, self._failures)
            return retry_seconds(self._failures)
        self._failures = 0
        self.services.troubles.note_loop(self.name, 0)
        return seconds_to_turn(self.interval_seconds, time.monotonic())

    async def _hold_lease(self, now: datetime) -> bool:
        """Renew the lease when a third of it has passed. With SQLite this is the only process: a lease from before a crash is ours, and
        is not waited for. One that seems to hold for longer than any does was taken before the clock was set back."""
        left = None if self._held_until is None else self._held_until - now
        if left is not None and (self._is_only_process or self._lease_seconds * 2 / 3 < left <= self._lease_seconds):
            return True
        expires = now + self._lease_seconds
        async with self.services.write() as session:
            held = await leases.take(session, self.name, self.holder, now, expires, by_force=self._is_only_process)
        self._held_until = expires if held else None
        return held

    @property
    def _lease_seconds(self) -> timedelta:
        return timedelta(seconds=max(LEASE_SECONDS, self.interval_seconds * LEASE_INTERVALS))

    @property
    def _is_only_process(self) -> bool:
        return self.services.control.is_sqlite

    async def _release(self) -> None:
        if self._held_until is None:
            return
        async with self.services.write() as session:
            await leases.release(session, self.name, self.holder)
        self._held_until = None


def seconds_to_turn(interval_seconds: float, now: float) -> float:
    """The seconds until the next turn of a loop that has just taken one. `now` is monotonic. Short intervals end at multiples of themselves, but
    for what would be less than a quarter of one: a timer may be early."""
    if interval_seconds > LONGEST_TOGETHER_SECONDS:
        return interval_seconds
    return until_beat(interval_seconds, now)


async def run_until_stopped(loops: list[LeaseLoop], stop: asyncio.Event, timeout_seconds: float) -> None:
    """Run all loops; after `stop`, each gets `timeout_seconds` to finish its step."""
    tasks = [asyncio.create_task(loop.run(), name=f"loop:{loop.name}") for loop in loops]
    await stop.wait()
    for loop in loops:
        loop.stop()
    _, late = await asyncio.wait(tasks, timeout=timeout_seconds)
    for task in late:
        logger.warning("%s did not finish its step within %.0f s and is cut off", task.get_name(), timeout_seconds)
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
