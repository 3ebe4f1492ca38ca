"""Corrects the causes of incidents: a culprit may report after its victims, on whose reports alone the decision rested."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby

from paceline.api.core.context import Services
from paceline.api.core.troubles import Subject
from paceline.api.services.history import culprits
from paceline.api.services.lifecycle.isolation import PhaseTurns
from paceline.cluster.states import NodeState
from paceline.db.models.incidents import IncidentRow
from paceline.db.models.jobs import RankRow
from paceline.db.repositories import incidents as incident_rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows

#: The ranks of each (job, generation).
Gangs = Mapping[tuple[str, int], Sequence[RankRow]]


async def step_once(services: Services, now: datetime) -> None:
    """Update each incident with new reports, in one transaction each."""
    async with services.control.read() as session:
        open_incidents = await incident_rows.with_open_cause(session)
        ranks = await job_rows.ranks(session, [(each.job_id, each.generation) for each in open_incidents])
        jobs = await job_rows.by_id(session, {each.job_id for each in open_incidents})
        standing = await node_rows.in_states(session, {NodeState.READY, NodeState.CORDONED}) if open_incidents else set[str]()
        names = await node_rows.named(session, {rank.node_id for gang in ranks.values() for rank in gang})
    turns = PhaseTurns(services, "find the culprit", now)
    for job_id, incidents in groupby(sorted(open_incidents, key=lambda each: each.job_id), key=lambda each: each.job_id):
        stay = standing if job_id in jobs and jobs[job_id].spec.is_script else set[str]()
        await turns.take(Subject("job", job_id), partial(_update, services, list(incidents), ranks, names, stay, now))
    services.troubles.forget_all_but(turns.task, {each.job_id for each in open_incidents})


async def _update(
    services: Services,
    incidents: Sequence[IncidentRow],
    ranks: Gangs,
    names: Mapping[str, str],
    standing: Collection[str],
    now: datetime,
) -> None:
    for known in incidents:
        gang = ranks.get((known.job_id, known.generation), [])
        finding = culprits.examine(known, gang, names, services.uptime.since, now, standing=standing)
        if finding is not None:
            await _carry_out(services, known, finding, now)


async def _carry_out(services: Services, known: IncidentRow, finding: culprits.Finding, now: datetime) -> None:
    async with services.write() as session:
        job = await job_rows.get_locked(session, known.job_id)
        incident = await session.get(IncidentRow, known.id, populate_existing=True)
        if job is not None and incident is not None and not incident.cause_is_final:
            await culprits.carry_out(session, job, incident, finding, now)
