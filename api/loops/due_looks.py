"""Looks whether loops have anything to do, together for all that ask at the same moment: mostly none has, and their questions were most of what an idle
coordinator did.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

from paceline.api.core.context import Services
from paceline.db.repositories.due_work import DueWork, due_work

#: For the loops that wake up at the same moment.
GATHER_SECONDS = 0.02
#: Within which the last points of a trial that has ended arrive: its experiment is analyzed after that.
ANALYSIS_DELAY = timedelta(seconds=5)


@dataclass
class DueLooks:
    """One look for all that ask before it begins. `gather_seconds`: how long it waits for them."""

    services: Services
    gather_seconds: float = GATHER_SECONDS
    _next: asyncio.Task[DueWork] | None = None

    async def look(self, now: datetime) -> DueWork:
        """Return which loops have something to do, as the rows are now, or were a moment after this was called."""
        if self._next is None:
            self._next = asyncio.create_task(self._look(now), name="due-look")
        return await asyncio.shield(self._next)

    async def _look(self, now: datetime) -> DueWork:
        try:
            await asyncio.sleep(self.gather_seconds)
        finally:
            self._next = None  # whoever asks from here on may ask about what this one does not see
        async with self.services.control.read() as session:
            return await due_work(session, now, ANALYSIS_DELAY)
