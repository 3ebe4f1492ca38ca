"""Has readings of nodes rolled up every few minutes: until then readers add them themselves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from paceline.api.core import bus
from paceline.api.core.context import Services
from paceline.api.services.storage import readings
from paceline.api.services.storage.keeping import PASS_SECONDS, DeletionPace

INTERVAL_SECONDS = 10.0
REFRESH_EVERY = timedelta(minutes=5)


@dataclass
class ReadingsKeeper:
    services: Services
    pass_seconds: float = PASS_SECONDS
    _done_at: datetime | None = None

    async def step_once(self, now: datetime) -> None:
        pace = DeletionPace.of(self.pass_seconds)
        if self._done_at is not None and timedelta(0) <= now - self._done_at < REFRESH_EVERY:  # less than none: the clock was set back
            if failed := self.services.troubles.failed(readings.turns_at(self.services, now).task):
                await readings.roll_up_all(self.services, pace, now, failed)
            return
        if await readings.roll_up_all(self.services, pace, now):
            self._done_at = now
        else:
            self.services.bus.publish(bus.READING_ROLLUPS)  # there is more to do: the next step begins at once
