"""Keeps the ledger of incidents true: a culprit may be heard of after its victims, whose word was all there was to decide on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby

from api.deps import Services
from api.loops.isolation import Turns
from api.services import culprits
from api.services.troubles import Subject
from db.models.incidents import IncidentRow
from db.models.jobs import RankRow
from db.repositories import incidents as incident_rows
from db.repositories import jobs as job_rows
from db.repositories import nodes as node_rows

#: The ranks of each (job, generation).
Gangs = Mapping[tuple[str, int], Sequence[RankRow]]


async def step_once(services: Services, now: datetime) -> None:
    """One transaction for each incident of which there is news."""
    async with services.control.read() as session:
        unsettled = await incident_rows.unsettled(session)
        ranks = await job_rows.ranks(session, [(each.job_id, each.generation) for each in unsettled])
        names = await node_rows.named(session, {rank.node_id for gang in ranks.values() for rank in gang})
    turns = Turns(services, "find out who was to blame", now)
    for job_id, incidents in groupby(sorted(unsettled, key=lambda each: each.job_id), key=lambda each: each.job_id):
        await turns.take(Subject("job", job_id), partial(_look_into, services, list(incidents), ranks, names, now))
    services.troubles.forget_all_but(turns.task, {each.job_id for each in unsettled})


async def _look_into(services: Services, incidents: Sequence[IncidentRow], ranks: Gangs, names: Mapping[str, str], now: datetime) -> None:
    for known in incidents:
        finding = culprits.examine(known, ranks.get((known.job_id, known.generation), []), names, now)
        if finding is not None:
            await _carry_out(services, known, finding, now)


async def _carry_out(services: Services, known: IncidentRow, finding: culprits.Finding, now: datetime) -> None:
    async with services.write() as session:
        job = await job_rows.get_locked(session, known.job_id)
        incident = await session.get(IncidentRow, known.id, populate_existing=True)
        if job is not None and incident is not None and not incident.settled:
            await culprits.carry_out(session, job, incident, finding, now)
