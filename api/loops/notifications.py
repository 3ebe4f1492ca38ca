"""Turns what happens into notifications: reads the history as it grows, and looks at queue, disk and goodput now and then."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from paceline.api.core.context import Services
from paceline.api.loops.due_looks import DueLooks
from paceline.api.services.history.heavy_reads import HeavyReads
from paceline.api.services.lifecycle.isolation import each_phase
from paceline.api.services.notifications import facts, looks

INTERVAL_SECONDS = 2.0
#: Transactions of events in one step: what is left is for the next.
MOST_TRANSACTIONS = 20
QUEUE_AND_DISK_EVERY, GOODPUT_EVERY = timedelta(seconds=10), timedelta(minutes=1)


@dataclass
class NotificationWatch:
    services: Services
    reads: HeavyReads
    due: DueLooks
    _looked_at: datetime | None = None
    _goodput_at: datetime | None = None
    _goodput: looks.GoodputLook = field(init=False)

    def __post_init__(self) -> None:
        self._goodput = looks.GoodputLook(self.services, self.reads)

    async def step_once(self, now: datetime) -> None:
        """Take one step. A part that fails holds up no other."""
        phases = [self._read_events]
        if _is_due(self._looked_at, QUEUE_AND_DISK_EVERY, now):
            self._looked_at = now
            phases += [partial(looks.at_queue, self.services), partial(looks.at_disk, self.services)]
        if _is_due(self._goodput_at, GOODPUT_EVERY, now):
            self._goodput_at = now
            phases.append(self._goodput.look)
        await each_phase(phases, now)

    async def _read_events(self, now: datetime) -> None:
        if not (await self.due.look(now)).events:
            return
        for _ in range(MOST_TRANSACTIONS):
            if not await facts.read_events(self.services, now):
                return


def _is_due(last: datetime | None, every: timedelta, now: datetime) -> bool:
    """Whether it is time for the next look. So it is once the clock was set back: the last look may lie a day ahead."""
    return last is None or not timedelta(0) <= now - last < every
