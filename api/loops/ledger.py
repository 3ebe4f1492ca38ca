"""Keeps the ledger of incidents true: a culprit may be heard of after its victims, whose word was all there was to decide on."""

from __future__ import annotations

from datetime import datetime

from api.deps import Services
from api.services import culprits
from db.models.incidents import IncidentRow
from db.repositories import incidents as incident_rows
from db.repositories import jobs as job_rows
from db.repositories import nodes as node_rows


async def step_once(services: Services, now: datetime) -> None:
    """One transaction for each incident of which there is news."""
    async with services.control.read() as session:
        unsettled = await incident_rows.unsettled(session)
        ranks = await job_rows.ranks(session, [(each.job_id, each.generation) for each in unsettled])
        names = await node_rows.named(session, {rank.node_id for gang in ranks.values() for rank in gang})
    for each in unsettled:
        finding = culprits.examine(each, ranks.get((each.job_id, each.generation), []), names, now)
        if finding is not None:
            await _carry_out(services, each, finding, now)


async def _carry_out(services: Services, known: IncidentRow, finding: culprits.Finding, now: datetime) -> None:
    async with services.write() as session:
        job = await job_rows.get_locked(session, known.job_id)
        incident = await session.get(IncidentRow, known.id, populate_existing=True)
        if job is not None and incident is not None and not incident.settled:
            await culprits.carry_out(session, job, incident, finding, now)
