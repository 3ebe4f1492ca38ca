"""The ledger of faults: opened as the coordinator decides, filled in as the next generation tells how it came to be."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, cast

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from api.schemas.incidents import Action, Incident, Phase, PhaseName
from api.schemas.jobs import Failure
from cluster.decide import Decision
from cluster.states import EndReason, JobState, RankState
from db.models.incidents import IncidentRow
from db.models.jobs import GenerationRow, JobRow, RankRow
from db.repositories import incidents as incident_rows
from db.repositories import jobs as job_rows

#: What ends a generation without anything having gone wrong.
_HARMLESS = frozenset({EndReason.COMPLETED, EndReason.CANCELLED, EndReason.PAUSED, EndReason.PREEMPTED})


class CarriedOn(msgspec.Struct, frozen=True):
    """What rank 0 tells once the first step of a generation of living processes is done; seconds since the epoch."""

    step: int
    transfers: int
    entered_at: float
    joined_at: float
    agreed_at: float
    first_step_at: float | None


def is_incident(decision: Decision) -> bool:
    return decision.to is JobState.RECOVERING or (decision.to is JobState.STOPPING and decision.reason not in _HARMLESS)


async def open_incident(
    session: AsyncSession, job: JobRow, ranks: Sequence[RankRow], decision: Decision, culprit: dict[str, Any] | None, now: datetime
) -> None:
    """In the transaction that carries the decision out. `job` is as it is after that."""
    action = "closed_up" if decision.survivors else "restarted" if decision.to is JobState.RECOVERING else "gave_up"
    detected_at = min((rank.updated_at for rank in ranks if _tells(rank)), default=now)
    session.add(
        IncidentRow(
            job_id=job.id,
            generation=job.generation - bool(decision.survivors),
            next_generation=job.generation if decision.survivors else None,
            action=action,
            cause=decision.reason,
            why=decision.why,
            culprit=culprit,
            step=max((rank.step for rank in ranks), default=0),
            fault_at=min(_fault_at(ranks) or detected_at, detected_at),
            detected_at=detected_at,
            decided_at=now,
        )
    )
    await session.flush()


def _tells(rank: RankRow) -> bool:
    return rank.failure is not None or rank.state in (RankState.EXITED, RankState.LOST)


def _fault_at(ranks: Sequence[RankRow]) -> datetime | None:
    """The earliest that a rank tells of: its own end, or the break of its connection to the one that ended."""
    times = [float(rank.failure["time"]) for rank in ranks if rank.failure and rank.failure.get("time")]
    return datetime.fromtimestamp(min(times), UTC) if times else None


async def note_restart(session: AsyncSession, job: JobRow, resumed_step: int) -> None:
    """A new generation has been placed: it answers the restarts that waited for it."""
    for incident in await incident_rows.unanswered(session, job.id):
        incident.next_generation, incident.resumed_step = job.generation, resumed_step
    await session.flush()


async def note_recovery(session: AsyncSession, job_id: str, generation: int, carried: CarriedOn) -> None:
    incident = await incident_rows.that_led_to(session, job_id, generation)
    if incident is None:
        return
    incident.resumed_step, incident.transfers = carried.step, carried.transfers
    incident.entered_at, incident.joined_at, incident.agreed_at = (
        datetime.fromtimestamp(moment, UTC) for moment in (carried.entered_at, carried.joined_at, carried.agreed_at)
    )
    incident.first_step_at = datetime.fromtimestamp(carried.first_step_at, UTC) if carried.first_step_at else None


async def list_incidents(session: AsyncSession, job_id: str) -> list[Incident]:
    generations = {row.generation: row for row in await job_rows.generations_of(session, job_id)}
    return [describe(row, generations.get(row.next_generation or 0)) for row in await incident_rows.of_job(session, job_id)]


def describe(row: IncidentRow, following: GenerationRow | None) -> Incident:
    first_step_at = row.first_step_at or (following.first_step_at if following else None)
    return Incident(
        id=row.id,
        job_id=row.job_id,
        generation=row.generation,
        next_generation=row.next_generation,
        action=cast("Action", row.action),
        cause=row.cause,
        why=row.why,
        culprit=Failure.model_validate(row.culprit) if row.culprit else None,
        step=row.step,
        resumed_step=row.resumed_step,
        steps_lost=None if row.resumed_step is None else max(0, row.step - row.resumed_step),
        fault_at=row.fault_at,
        first_step_at=first_step_at,
        outage_seconds=(first_step_at - row.fault_at).total_seconds() if first_step_at else None,
        phases=phases(row, first_step_at),
    )


def phases(row: IncidentRow, first_step_at: datetime | None) -> list[Phase]:
    """From each moment that is known to the next one; a phase is named by the moment that ends it."""
    moments: list[tuple[PhaseName, datetime | None]] = [
        ("detect", row.fault_at),
        ("detect", row.detected_at),
        ("decide", row.decided_at),
        ("fence", row.entered_at),
        ("rebuild", row.joined_at),
        ("transfer", row.agreed_at),
        ("first_step", first_step_at),
    ]
    known = [(name, moment) for name, moment in moments if moment is not None]
    return [Phase(name=name, seconds=(end - start).total_seconds()) for (_, start), (name, end) in pairwise(known)]
