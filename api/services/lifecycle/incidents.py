"""The records of incidents: opened as the coordinator decides, filled in as the next generation reports its start."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.services.specs.job_views import report_of, stall_of, suspicion_of
from paceline.cluster.policy.decisions import Regroup, Restart, Stop
from paceline.cluster.states import TERMINAL_JOB_STATES, EndReason, JobState, RankState
from paceline.db.models.incidents import IncidentRow
from paceline.db.models.jobs import JobRow, RankRow
from paceline.db.repositories import incidents as incident_rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows

#: A node's clock may say anything; what is later than the year 3000 is no time (nor is NaN).
LATEST_TOLD = 32_503_680_000.0


class CarriedOn(msgspec.Struct, frozen=True):
    """The report of rank 0 once the first step of a generation of living processes is done; seconds since the epoch."""

    step: int
    transfers: int
    entered_at: float
    joined_at: float
    agreed_at: float
    first_step_at: float | None
    fell_back: bool = False  # to a checkpoint, or to the job's start


async def open_incident(
    session: AsyncSession,
    job: JobRow,
    ranks: Sequence[RankRow],
    decision: Regroup | Restart | Stop,
    culprit: dict[str, Any] | None,
    now: datetime,
) -> None:
    """Open an incident in the transaction that carries the decision out. `job` is as it is after that. A generation has one fault that
    ends it: later decisions are about that one."""
    next_generation = job.generation if isinstance(decision, Regroup) else None
    number = job.generation if next_generation is None else next_generation - 1
    if earlier := await incident_rows.of_generation(session, job.id, number):
        _decide_anew(earlier, decision, culprit)
        return
    detected_at = min((rank.updated_at for rank in ranks if _has_reported(rank)), default=now)
    session.add(
        IncidentRow(
            job_id=job.id,
            generation=number,
            next_generation=next_generation,
            action=decision.action,
            cause=decision.reason,
            why=decision.why,
            culprit=culprit,
            step=max((rank.step for rank in ranks), default=0),
            fault_at=await _fault_within_generation(session, job.id, number, ranks, decision.reason, detected_at),
            detected_at=detected_at,
            decided_at=now,
        )
    )
    await session.flush()


def _decide_anew(incident: IncidentRow, decision: Regroup | Restart | Stop, culprit: dict[str, Any] | None) -> None:
    """Record that the restart is of no use after all, or does not come about, which does not change its cause."""
    incident.action, incident.why = decision.action, decision.why
    if decision.reason is not EndReason.STOP_TIMEOUT:
        incident.cause, incident.culprit = decision.reason, culprit or incident.culprit


async def _fault_within_generation(
    session: AsyncSession, job_id: str, number: int, ranks: Sequence[RankRow], reason: EndReason, detected_at: datetime
) -> datetime:
    """The time of the fault, within its generation. A script that hangs has stood still since its last output or step. A node's clock
    may be wrong by any amount: the fault was not before the generation began, nor after it was reported."""
    generation = await job_rows.generation(session, job_id, number)
    if generation is None:
        return detected_at
    suspicion = suspicion_of(generation) if reason is EndReason.HANG else None
    if suspicion is not None:
        signs = [datetime.fromtimestamp(suspicion.since, UTC)]
    else:
        signs = [*_told_times(ranks), *await _silent_since(session, ranks)]
    return min(max(min(signs, default=detected_at), generation.started_at), detected_at)


def _has_reported(rank: RankRow) -> bool:
    return rank.failure is not None or rank.stall is not None or rank.state in (RankState.EXITED, RankState.LOST)


def _told_times(ranks: Sequence[RankRow]) -> list[datetime]:
    """The times in the reports of ranks: of a rank's own end, of the break of its connection to the one that ended, or of the start of an
    operation that it could not finish."""
    times = [report.time for rank in ranks if (report := report_of(rank)) is not None]
    times += [stall.since for rank in ranks if (stall := stall_of(rank)) is not None]
    return [datetime.fromtimestamp(moment, UTC) for moment in times if 0.0 < moment < LATEST_TOLD]


async def _silent_since(session: AsyncSession, ranks: Sequence[RankRow]) -> list[datetime]:
    """The time since when nothing shows that the lost ranks were at work: their node was heard of, or a rank of the gang made a later
    step, which it cannot without them. Empty where no rank is lost."""
    heartbeats = await node_rows.heartbeats(session, {rank.node_id for rank in ranks if rank.state is RankState.LOST})
    steps = [rank.progress_at for rank in ranks if rank.progress_at is not None]
    return [max([min(heartbeats), *steps])] if heartbeats else []


async def note_restart(session: AsyncSession, job: JobRow, resumed_step: int, now: datetime) -> None:
    """Note that a new generation has been placed: it answers the restarts that waited for it."""
    if job.generation == 1:
        return
    for incident in await incident_rows.unanswered(session, job.id):
        incident.next_generation, incident.resumed_step = job.generation, resumed_step
        old = (await job_rows.ranks(session, [(job.id, incident.generation)])).get((job.id, incident.generation), [])
        gone = max((rank.updated_at for rank in old), default=incident.decided_at)
        incident.fenced_at, incident.entered_at = min(max(gone, incident.decided_at), now), now
    await session.flush()


async def note_restored(session: AsyncSession, job_id: str, generation: int, step: int, now: datetime) -> None:
    """Note that the new processes have loaded a checkpoint, which may be an older one than was hoped for."""
    incident = await incident_rows.that_led_to(session, job_id, generation)
    if incident is not None:
        incident.resumed_step, incident.agreed_at = step, now


async def note_states(session: AsyncSession, jobs: Sequence[JobRow], now: datetime) -> None:
    """Update the incidents that jobs have not got over yet after a change of their states."""
    told = {job.id: job for job in jobs if job.state in (JobState.RUNNING, JobState.PAUSED, *TERMINAL_JOB_STATES)}
    for incident in await incident_rows.unfinished(session, told.keys()) if told else ():
        job = told[incident.job_id]
        if job.state is not JobState.RUNNING:
            incident.closed_at = now
        elif incident.next_generation == job.generation and incident.agreed_at is None and incident.action == "restarted":
            incident.agreed_at = now
    await session.flush()


async def note_recovery(session: AsyncSession, job_id: str, generation: int, carried: CarriedOn) -> None:
    incident = await incident_rows.that_led_to(session, job_id, generation)
    if incident is None:
        return
    incident.action = "fell_back" if carried.fell_back else "closed_up"  # which of the two it can be only the ranks know for certain
    incident.resumed_step, incident.transfers = carried.step, carried.transfers
    incident.entered_at, incident.joined_at, incident.agreed_at = (
        datetime.fromtimestamp(moment, UTC) for moment in (carried.entered_at, carried.joined_at, carried.agreed_at)
    )
    incident.first_step_at = datetime.fromtimestamp(carried.first_step_at, UTC) if carried.first_step_at else None
