"""Bounds the part of a job's history that the reports of its ranks may fill, so that changes of state always find room in the database.

Failed saves, restores, recoveries and bad losses are *essential*: they have room after evaluations, samples and notes have none left, and on
a nearly full disk. Their room has an end too, since a rank can report as many as it likes. Events of checkpoints themselves are changes
of state, each with a row of its own, and are not limited here.

The database has the count: it outlives the coordinator, and holds for several of them. Each coordinator takes room in portions and counts
again when one is used up, so no upload without such reports costs anything.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.disk import DiskWatch
from paceline.api.core.identity import SYSTEM
from paceline.api.services.lifecycle import events
from paceline.db.repositories import events as event_rows

#: Events of one job, of every kind, beyond which its ranks' reports are left out of the history.
MAX_JOB_EVENTS = 100_000
#: Events of one job, of every kind, beyond which its ranks' essential reports are left out too.
MAX_EVENTS_WITH_ESSENTIAL = 200_000
HISTORY_FULL = "job.history_full"
#: How many reports are stored before the job's events are counted again; each room of each coordinator may go beyond the limit by as many.
PORTION = 1_000
MAX_REMEMBERED = 10_000


@dataclass
class HistoryRoom:
    disk: DiskWatch
    #: By job, and whether for essential reports: what is left of the portion; 0: the history is full.
    _left: OrderedDict[tuple[str, bool], int] = field(default_factory=OrderedDict)

    async def take(self, session: AsyncSession, job_id: str, *, on_low_disk: bool = False) -> str | None:
        """Take the room of one event that is not essential. Returns the reason where there is none: the job's history is full, or the disk is
        nearly so and the event is not one that goes on then (`on_low_disk`)."""
        if self.disk.is_low and not on_low_disk:
            return "on a nearly full disk (PACELINE_DISK_LOW) the history has no room for evaluations, samples and notes of ranks"
        if await self._take(session, (job_id, False), MAX_JOB_EVENTS):
            return None
        return f"the job has {MAX_JOB_EVENTS} events: its history has no room for more evaluations, samples and notes of ranks"

    async def take_essential(self, session: AsyncSession, job_id: str) -> str | None:
        """Take the room of one essential event. Returns the reason where there is none; the job's history has that once."""
        if await self._take(session, (job_id, True), MAX_EVENTS_WITH_ESSENTIAL):
            return None
        return _why_full()

    async def _take(self, session: AsyncSession, key: tuple[str, bool], limit: int) -> bool:
        left = self._left.pop(key, None)
        if left is None:
            job_id, is_essential = key
            left = min(PORTION, limit - await event_rows.count_of_job(session, job_id, limit))
            if is_essential and left <= 0:
                await _tell_once(session, job_id)
        if left != 1:  # else the next one counts again
            self._remember(key, max(left - 1, 0))
        return left > 0

    def _remember(self, key: tuple[str, bool], left: int) -> None:
        self._left[key] = left
        while len(self._left) > MAX_REMEMBERED:
            self._left.popitem(last=False)


def _why_full() -> str:
    return (
        f"the job has {MAX_EVENTS_WITH_ESSENTIAL} events: its history has no room for more failed saves, restores, recoveries and bad losses "
        "that its ranks report"
    )


async def _tell_once(session: AsyncSession, job_id: str) -> None:
    if await event_rows.has_any(session, job_id, HISTORY_FULL):
        return
    message = f"{_why_full()}; what they ask for is done all the same, and changes of the job's state are recorded"
    await events.record(
        session,
        type=HISTORY_FULL,
        actor=SYSTEM,
        cause="history_full",
        message=message,
        job_id=job_id,
        data={"limit": MAX_EVENTS_WITH_ESSENTIAL},
    )
