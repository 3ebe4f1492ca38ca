"""Has roll-ups made before the points beyond them are too many to be read beside them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from paceline.api.core import bus
from paceline.api.core.context import Services
from paceline.api.services.storage.keeping import PASS_SECONDS, DeletionPace
from paceline.api.services.storage.rollups import WINDOW_CHARACTERS, WINDOW_RECORDS, refresh
from paceline.db.repositories import rollups

INTERVAL_SECONDS = 2.0
#: A refresh waits until there is a window of points, so that each bucket gets many of them; but no longer than this.
LONGEST_WAIT = timedelta(seconds=30)


@dataclass
class RollupKeeper:
    services: Services
    pass_seconds: float = PASS_SECONDS
    _waits_since: datetime | None = None

    async def step_once(self, now: datetime) -> None:
        if not await self._is_due(now):
            return
        if await refresh(self.services, DeletionPace.of(self.pass_seconds), now):
            self._waits_since = None
        else:
            self.services.bus.publish(bus.ROLLUPS)  # there is more to do: the next step begins at once

    async def _is_due(self, now: datetime) -> bool:
        async with self.services.metrics.read() as session:
            made, newest = await rollups.made_to(session), await rollups.newest_seq(session)
            if newest <= made:
                self._waits_since = None
                return False
            self._waits_since = min(self._waits_since or now, now)  # later than now: the clock was set back
            if newest - made >= WINDOW_RECORDS or now - self._waits_since >= LONGEST_WAIT:
                return True
            return await rollups.tail_size(session, made) >= WINDOW_CHARACTERS
