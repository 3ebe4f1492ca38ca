"""Pending jobs that the autoscaler launches no node for: stored at each look, told with the job and with the pools."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.schemas.nodes import WithheldJob
from paceline.cluster.autoscaling.decisions import Withheld
from paceline.db.models.provisioning import WithheldRow
from paceline.db.repositories import provisioning as rows

#: With each pool, so many jobs are named.
MOST_NAMED = 20


async def store(services: Services, found: Sequence[Withheld]) -> list[Withheld]:
    """Replace what is stored by `found`. A job that no pool was asked for yet may start in a moment, and is left out. Returns what is new or
    has another reason."""
    wanted = {each.job_id: each for each in found if each.pools}
    async with services.control.read() as session:
        known = {row.job_id: (row.reason, row.pools) for row in await rows.withheld(session)}
    changed = [each for each in wanted.values() if known.get(each.job_id) != (each.reason, dict(each.pools))]
    over = [job_id for job_id in known if job_id not in wanted]
    if changed or over:
        async with services.write() as session:
            await rows.forget_withheld(session, [*over, *(each.job_id for each in changed)])
            session.add_all(WithheldRow(job_id=each.job_id, reason=each.reason, pools=dict(each.pools)) for each in changed)
    return changed


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
