"""Jobs that the autoscaler launches no node for: stored at each look, told with the job and with the pools, and an event where the reason is another one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.identity import AUTOSCALER
from paceline.api.schemas.nodes import WithheldJob
from paceline.api.services.lifecycle import events
from paceline.cluster.autoscaling.decisions import Withheld
from paceline.db.models.provisioning import WithheldRow
from paceline.db.repositories import provisioning as rows

#: With each pool, so many jobs are named.
MOST_NAMED = 20
#: One event tells of a reason for so long, and of a job at most so many reasons: it may wait for weeks, and reasons have times and numbers in them.
TOLD_FOR, MOST_TOLD = timedelta(days=1), 20
_NUMBERS = re.compile(r"\b(?=\w*\d)\w+\b(?:(?:[:.]|, )(?=\w*\d)\w+\b)*")


@dataclass
class ToldReasons:
    """When the history was told which reasons of each job, whatever numbers, times and jobs they name. Kept from look to look; a coordinator that
    takes over begins anew."""

    _times: dict[str, dict[str, datetime]] = field(default_factory=dict)

    def is_news(self, each: Withheld) -> bool:
        told = self._times.get(each.job_id, {})
        return _NUMBERS.sub("#", each.reason) not in told and len(told) < MOST_TOLD

    def note(self, told: Sequence[Withheld], now: datetime) -> None:
        """Note what the history was told now, and forget what it was told long ago."""
        for each in told:
            self._times.setdefault(each.job_id, {})[_NUMBERS.sub("#", each.reason)] = now
        recent = {job_id: {why: at for why, at in times.items() if now - at < TOLD_FOR} for job_id, times in self._times.items()}
        self._times = {job_id: times for job_id, times in recent.items() if times}


async def store(services: Services, found: Sequence[Withheld], told: ToldReasons, now: datetime) -> list[Withheld]:
    """Replace what is stored by `found`, and record the reasons that the history was not `told` yet. A job that no pool was asked for yet may
    start in a moment, and is left out. Returns what is new or has another reason."""
    wanted = {each.job_id: each for each in found if each.pools}
    async with services.control.read() as session:
        known = {row.job_id: (row.reason, row.pools) for row in await rows.withheld(session)}
    changed = [each for each in wanted.values() if known.get(each.job_id) != (each.reason, dict(each.pools))]
    over = [job_id for job_id in known if job_id not in wanted]
    told.note([], now)
    news = [each for each in changed if told.is_news(each)]
    if changed or over:
        async with services.write() as session:
            await rows.forget_withheld(session, [*over, *(each.job_id for each in changed)])
            session.add_all(WithheldRow(job_id=each.job_id, reason=each.reason, pools=dict(each.pools)) for each in changed)
            for each in news:
                await _record(session, each, now)
        told.note(news, now)
    return changed


async def _record(session: AsyncSession, each: Withheld, now: datetime) -> None:
    message, data = f"no node is launched for the job: {each.reason}", {"pools": dict(each.pools)}
    await events.record(
        session, type="autoscaler.withheld", actor=AUTOSCALER, cause=each.reason, message=message, job_id=each.job_id, data=data, time=now
    )


async def by_pool(session: AsyncSession) -> dict[str, list[WithheldJob]]:
    """The jobs that nodes of each pool could be launched for, and are not."""
    found: defaultdict[str, list[WithheldJob]] = defaultdict(list)
    for row, name in await rows.withheld_jobs(session):
        for pool, reason in row.pools.items():
            found[pool].append(WithheldJob(job_id=row.job_id, job_name=name, reason=reason))
    return found


async def reasons(session: AsyncSession, job_ids: Sequence[str]) -> dict[str, str]:
    """Why no node is launched for these jobs; those are left out for which that is not so."""
    return {row.job_id: row.reason for row in await rows.withheld(session, job_ids)} if job_ids else {}
