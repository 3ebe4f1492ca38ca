"""Deletes stored data: on request, beyond its age, and when the database is too large."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from paceline.api.core import bus
from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.services.bundles import bundles
from paceline.api.services.lifecycle import events
from paceline.api.services.lifecycle.isolation import each_part
from paceline.api.services.storage import aging, removals
from paceline.api.services.storage.keeping import PASS_SECONDS, DeletionPace, RetentionSweep
from paceline.cluster.history.storage import KeepPolicy
from paceline.db.repositories import storage

logger = logging.getLogger(__name__)
INTERVAL_SECONDS = 10.0
#: Who has set the clock wrong, or started a machine whose clock is wrong, has this long to set it right.
CLOCK_STEADY = timedelta(hours=1)
#: Pages of an SQLite file that one transaction gives back, and the fewest for which it is worth one.
PAGES_AT_ONCE, PAGES_WORTH_IT = 500, 100
#: Of the length of a pass, which the rest of it is for deleting.
SHRINK_SHARE = 0.25
#: A write-ahead log of so many bytes is written into its file: SQLite, which tries it each 4 MiB, has not come to its end.
LOG_BYTES = 16 << 20


@dataclass
class StorageKeeper:
    services: Services
    pass_seconds: float = PASS_SECONDS
    _hourly_due: bool = True
    _told_low: bool = False
    _given_back: bool = False

    async def step_once(self, now: datetime) -> None:
        """Make one pass of a few seconds at most; the rest is left for the next. A job whose data cannot be deleted holds up no other, nor does
        a part that fails. Nothing is deleted by its age until the clock has been steady for an hour: to one that is months ahead everything is
        old."""
        sweep, policy = RetentionSweep(self.services, now, DeletionPace.of(self.pass_seconds)), self.services.settings.keep
        parts = (
            partial(self._report_disk, now),
            partial(removals.carry_out, sweep),
            partial(self._by_age, sweep, policy),
            partial(aging.by_size, sweep, policy),
            partial(self._hourly, sweep, policy),
            sweep.record_losses,
            self._shrink,
            self._empty_logs,
        )
        await each_part(parts)
        if sweep.pace.over:
            self.services.bus.publish(bus.STORAGE)  # there is more to do: the next pass begins at once

    def _knows_ages(self, now: datetime) -> bool:
        steady_since = self.services.uptime.clock_steady_since
        return steady_since is None or now - steady_since >= CLOCK_STEADY

    async def _by_age(self, sweep: RetentionSweep, policy: KeepPolicy) -> None:
        if self._knows_ages(sweep.now):
            await aging.by_age(sweep, policy)

    async def _hourly(self, sweep: RetentionSweep, policy: KeepPolicy) -> None:
        if not self._knows_ages(sweep.now):
            return
        self._hourly_due |= await aging.mark_arrival(self.services, sweep.now, policy)
        if not self._hourly_due:
            return
        parts = (
            partial(aging.old_events, sweep, policy),
            partial(aging.repeated_events, sweep),
            partial(aging.old_checkpoints, sweep, policy),
            partial(aging.old_ranks, sweep, policy),
            partial(aging.ranks_of_many_generations, sweep),
            partial(aging.old_artifacts, sweep, policy),
            partial(self._drop_bundles, sweep),
            partial(removals.remove_late_data, self.services),
        )
        await each_part(parts)
        self._hourly_due = sweep.pace.over

    async def _drop_bundles(self, sweep: RetentionSweep) -> None:
        while await bundles.drop_unused(self.services, sweep.now) and not sweep.pace.over:
            pass

    async def _report_disk(self, now: datetime) -> None:
        disk = self.services.disk.state()
        if disk is None or disk.low == self._told_low:
            return
        self._told_low = disk.low
        words = "points, log lines and files wait on their nodes" if disk.low else "points, log lines and files are stored again"
        message = f"the coordinator's disk has {disk.free:,} bytes free, the watermark is {disk.limit:,}: {words}"
        logger.log(logging.WARNING if disk.low else logging.INFO, "%s", message)
        async with self.services.write() as session:
            await events.record(
                session,
                type="cluster.disk_low" if disk.low else "cluster.disk_fine",
                actor=SYSTEM,
                cause="free disk",
                message=message,
                data={"free_bytes": disk.free, "total_bytes": disk.total, "limit_bytes": disk.limit},
                time=now,
            )

    async def _shrink(self) -> None:
        """Give free pages of an SQLite file back to the disk, in time of its own: where there is always more to delete, none would be left."""
        pace, metrics = DeletionPace.of(self.pass_seconds * SHRINK_SHARE), self.services.metrics
        while not pace.over:
            async with metrics.read() as session:
                if not await storage.can_shrink(session) or await storage.free_pages(session) < PAGES_WORTH_IT:
                    return
            async with pace.turn(self.services) as session:
                await storage.shrink(session, PAGES_AT_ONCE)
            self._given_back = True

    async def _empty_logs(self) -> None:
        """Keep the logs of SQLite files short. What was given back is on the disk only once the log is in the file."""
        await self.services.control.empty_log(LOG_BYTES)
        await self.services.metrics.empty_log(0 if self._given_back else LOG_BYTES)
        self._given_back = False
