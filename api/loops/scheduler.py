"""Moves jobs along: decides for each what comes next, places those that want slots, then lets gangs grow and shrink. One
transaction per job and step; a job that raises is held up alone (`isolation.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from api.deps import Services
from api.loops import ledger
from api.loops.elasticity import Elasticity
from api.loops.isolation import Turns, each_phase
from api.loops.placing import Placing
from api.services import culprits, gang_lifecycle, incidents
from api.services.assignments import restore_candidates
from api.services.known_jobs import Known, load, load_locked, still_free
from cluster.placement import NodeShare
from cluster.states import EndReason, JobState
from cluster.views import Decision
from db.repositories import nodes as node_rows

#: One step follows a job through at most this many states; the rest waits for the next step.
MAX_PASSES = 5
#: States of a job that shows no failure.
UNFAILED = (JobState.RUNNING, JobState.RESIZING, JobState.QUEUED, JobState.COMPLETED, JobState.CANCELLED)


@dataclass
class Scheduler:
    """What it keeps from step to step only spares it work: a new one looks at everything."""

    services: Services
    _placing: Placing = field(init=False)
    _elasticity: Elasticity = field(init=False)

    def __post_init__(self) -> None:
        self._placing, self._elasticity = Placing(self.services), Elasticity(self.services)

    async def step_once(self, now: datetime) -> None:
        """All four parts, whichever of them fails."""
        phases = (partial(advance_all, self.services), self._placing.step_once, self._elasticity.step_once)
        await each_phase((*phases, partial(ledger.step_once, self.services)), now)


async def step_once(services: Services, now: datetime) -> None:
    """One step of a scheduler that has kept nothing."""
    await Scheduler(services).step_once(now)


async def advance_all(services: Services, now: datetime) -> None:
    for _ in range(MAX_PASSES):
        if not await advance(services, now):
            return


async def advance(services: Services, now: datetime) -> int:
    """How many jobs have moved."""
    async with services.control.read() as session:
        known = await load(session)
    turns = Turns(services, "decide what comes next for it", now)
    moved = [await turns.take(each.subject, partial(_advance, services, each, now)) for each in known]
    services.troubles.forget_all_but(turns.task, {each.job.id for each in known})
    return sum(map(bool, moved))


async def _advance(services: Services, known: Known, now: datetime) -> bool:
    return known.decide(now) is not None and await _decide(services, known.job.id, now)


async def _decide(services: Services, job_id: str, now: datetime) -> bool:
    """Looks again with everything locked: ranks that have ended since the first look must not be counted on, and one fault that ends
    several is one incident."""
    async with services.write() as session:
        known = await load_locked(session, job_id)
        decision = known.decide(now) if known else None
        if known is None or decision is None:
            return False
        await _carry_out(session, known, decision, now)
    return True


async def _carry_out(session: AsyncSession, known: Known, decision: Decision, now: datetime) -> None:
    job, was_stopping = known.job, known.job.state is JobState.STOPPING
    decision = await _with_slots(session, known, decision)
    failure = None if decision.to in UNFAILED else await _failure_after(session, known, decision)
    if decision.survivors:
        candidates = await restore_candidates(session, job, job.generation + 1) if decision.falls_back else []
        await gang_lifecycle.change_members(session, job, decision, failure, now, candidates[0] if candidates else None)
    else:
        await gang_lifecycle.apply(session, job, decision, failure, now)
    if (decision.survivors or not was_stopping) and incidents.is_incident(decision):
        await incidents.open_incident(session, job, known.members, decision, failure, now)
    await incidents.note_state(session, job, now)


async def _with_slots(session: AsyncSession, known: Known, decision: Decision) -> Decision:
    """Where somebody else has got a slot that a rank was to be started again in, the job restarts wherever there is room."""
    shares = [NodeShare(rank.node_id, (rank.slot,)) for rank in known.members if rank.rank in decision.replaced]
    return decision if await still_free(session, shares) else decision.as_restart


async def _failure_after(session: AsyncSession, known: Known, decision: Decision) -> dict[str, Any] | None:
    """What the job's page shows as its failure from now on: kept until it runs again or ends well."""
    node_names = await node_rows.named(session, {rank.node_id for rank in known.ranks})
    if decision.reason in (EndReason.START_TIMEOUT, EndReason.STOP_TIMEOUT):
        return known.job.failure or _timeout(known, decision, node_names)
    return culprits.describe(known.members, known.silent, decision, node_names) or known.job.failure


def _timeout(known: Known, decision: Decision, node_names: Mapping[str, str]) -> dict[str, Any] | None:
    late = [rank for rank in known.members if rank.pid is None] or known.members
    if not late or decision.reason is None:
        return None
    name = node_names.get(late[0].node_id, late[0].node_id)
    place = {"rank": late[0].rank, "node_name": name, "generation": late[0].generation}
    return {"kind": decision.reason.value, "message": decision.why, **place}
