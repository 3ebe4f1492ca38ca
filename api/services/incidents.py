"""The ledger of faults: opened as the coordinator decides, filled in as the next generation tells how it came to be."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from api.services.job_views import report_of, stall_of
from cluster.states import TERMINAL_JOB_STATES, EndReason, JobState, RankState
from cluster.views import Decision
from db.models.incidents import IncidentRow
from db.models.jobs import JobRow, RankRow
from db.repositories import incidents as incident_rows
from db.repositories import jobs as job_rows

#: A node's clock may say anything; what is later than the year 3000 is no time (nor is NaN).
LATEST_TOLD = 32_503_680_000.0
#: What ends a generation without anything having gone wrong.
_HARMLESS = frozenset({EndReason.COMPLETED, EndReason.CANCELLED, EndReason.PAUSED, EndReason.PREEMPTED, EndReason.RESIZED})


class CarriedOn(msgspec.Struct, frozen=True):
    """What rank 0 tells once the first step of a generation of living processes is done; seconds since the epoch."""

    step: int
    transfers: int
    entered_at: float
    joined_at: float
    agreed_at: float
    first_step_at: float | None
    fell_back: bool = False  # to a checkpoint, or to the job's start


def is_incident(decision: Decision) -> bool:
    return decision.to is JobState.RECOVERING or (decision.to is JobState.STOPPING and decision.reason not in _HARMLESS)


async def open_incident(
    session: AsyncSession, job: JobRow, ranks: Sequence[RankRow], decision: Decision, culprit: dict[str, Any] | None, now: datetime
) -> None:
    """In the transaction that carries the decision out. `job` is as it is after that. A generation has one fault that ends it: what is
    decided afterwards is decided about that."""
    action = _action(decision)
    number = job.generation - bool(decision.survivors)
    if earlier := await incident_rows.of_generation(session, job.id, number):
        _decide_anew(earlier, action, decision, culprit)
        return
    detected_at = min((rank.updated_at for rank in ranks if _tells(rank)), default=now)
    session.add(
        IncidentRow(
            job_id=job.id,
            generation=number,
            next_generation=job.generation if decision.survivors else None,
            action=action,
            cause=decision.reason,
            why=decision.why,
            culprit=culprit,
            step=max((rank.step for rank in ranks), default=0),
            fault_at=await _within_generation(session, job.id, number, _fault_at(ranks), detected_at),
            detected_at=detected_at,
            decided_at=now,
        )
    )
    await session.flush()


def _action(decision: Decision) -> str:
    if decision.survivors:
        return "fell_back" if decision.falls_back else "closed_up"
    return "restarted" if decision.to is JobState.RECOVERING else "gave_up"


def _decide_anew(incident: IncidentRow, action: str, decision: Decision, culprit: dict[str, Any] | None) -> None:
    """The restart is of no use after all, or does not come about, which does not change what it was for."""
    incident.action, incident.why = action, decision.why
    if decision.reason is not EndReason.STOP_TIMEOUT:
        incident.cause, incident.culprit = decision.reason, culprit or incident.culprit


async def _within_generation(session: AsyncSession, job_id: str, number: int, told: datetime | None, detected_at: datetime) -> datetime:
    """A node's clock may be wrong by any amount: the fault was not before the generation began, nor after it was heard of."""
    generation = await job_rows.generation(session, job_id, number)
    began = generation.started_at if generation is not None else detected_at
    return min(max(told or detected_at, began), detected_at)


def _tells(rank: RankRow) -> bool:
    return rank.failure is not None or rank.stall is not None or rank.state in (RankState.EXITED, RankState.LOST)


def _fault_at(ranks: Sequence[RankRow]) -> datetime | None:
    """The earliest that a rank tells of: its own end, the break of its connection to the one that ended, or when it began with what
    it could not finish."""
    times = [report.time for rank in ranks if (report := report_of(rank)) is not None]
    times += [stall.since for rank in ranks if (stall := stall_of(rank)) is not None]
    told = [moment for moment in times if 0.0 < moment < LATEST_TOLD]
    return datetime.fromtimestamp(min(told), UTC) if told else None


async def note_restart(session: AsyncSession, job: JobRow, resumed_step: int, now: datetime) -> None:
    """A new generation has been placed: it answers the restarts that waited for it."""
    if job.generation == 1:
        return
    for incident in await incident_rows.unanswered(session, job.id):
        incident.next_generation, incident.resumed_step = job.generation, resumed_step
        old = (await job_rows.ranks(session, [(job.id, incident.generation)])).get((job.id, incident.generation), [])
        gone = max((rank.updated_at for rank in old), default=incident.decided_at)
        incident.fenced_at, incident.entered_at = min(max(gone, incident.decided_at), now), now
    await session.flush()


async def note_restored(session: AsyncSession, job_id: str, generation: int, step: int, now: datetime) -> None:
    """The new processes have loaded a checkpoint, which may be an older one than was hoped for."""
    incident = await incident_rows.that_led_to(session, job_id, generation)
    if incident is not None:
        incident.resumed_step, incident.agreed_at = step, now


async def note_state(session: AsyncSession, job: JobRow, now: datetime) -> None:
    """What a change of the job's state says of the incidents that it has not got over yet."""
    if job.state is not JobState.RUNNING and job.state is not JobState.PAUSED and job.state not in TERMINAL_JOB_STATES:
        return
    for incident in await incident_rows.unfinished(session, job.id):
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
