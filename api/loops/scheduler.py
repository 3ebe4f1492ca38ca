"""Moves jobs along: decides for each its next state, places those that want slots, then lets gangs grow and shrink. One
transaction per job and step; a job that raises is held up alone (`isolation.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.loops import hangs, incident_causes
from paceline.api.loops.elasticity import Elasticity
from paceline.api.loops.isolation import PhaseTurns, each_phase
from paceline.api.loops.placing import Placing
from paceline.api.services.history import culprits
from paceline.api.services.lifecycle import gang_lifecycle, incidents
from paceline.api.services.scheduling.assignments import restore_candidates
from paceline.api.services.scheduling.job_snapshots import JobSnapshot, load, load_locked, still_free
from paceline.api.services.specs.job_views import suspicion_of
from paceline.cluster.policy.decisions import Decision, Regroup, Restart, Stop, Transition
from paceline.cluster.policy.placement import NodeShare
from paceline.cluster.states import EndReason, JobState
from paceline.db.repositories import nodes as node_rows

#: One step follows a job through at most this many states; the rest waits for the next step.
MAX_PASSES = 5
#: States of a job that shows no failure.
UNFAILED = (JobState.RUNNING, JobState.RESIZING, JobState.QUEUED, JobState.COMPLETED, JobState.CANCELLED)


@dataclass
class Scheduler:
    """The scheduler. State that it keeps from step to step only spares work: a new one looks at everything."""

    services: Services
    _placing: Placing = field(init=False)
    _elasticity: Elasticity = field(init=False)

    def __post_init__(self) -> None:
        self._placing, self._elasticity = Placing(self.services), Elasticity(self.services)

    async def step_once(self, now: datetime) -> None:
        """Run all five phases, whichever of them fails."""
        phases = (
            partial(hangs.step_once, self.services),
            partial(advance_all, self.services),
            self._placing.step_once,
            self._elasticity.step_once,
        )
        await each_phase((*phases, partial(incident_causes.step_once, self.services)), now)


async def step_once(services: Services, now: datetime) -> None:
    """One step of a scheduler that has kept nothing."""
    await Scheduler(services).step_once(now)


async def advance_all(services: Services, now: datetime) -> None:
    for _ in range(MAX_PASSES):
        if not await advance(services, now):
            return


async def advance(services: Services, now: datetime) -> int:
    """Advance these jobs. Returns how many have moved."""
    async with services.control.read() as session:
        known = await load(session)
    turns = PhaseTurns(services, "decide what comes next for it", now)
    moved = [await turns.take(each.subject, partial(_advance, services, each, now)) for each in known]
    services.troubles.forget_all_but(turns.task, {each.job.id for each in known})
    return sum(map(bool, moved))


async def _advance(services: Services, known: JobSnapshot, now: datetime) -> bool:
    return known.decide(now) is not None and await _decide(services, known.job.id, now)


async def _decide(services: Services, job_id: str, now: datetime) -> bool:
    """Decide again with everything locked: ranks that have ended since the first look must not be counted on, and one fault that ends
    several is one incident."""
    async with services.write() as session:
        known = await load_locked(session, job_id)
        decision = known.decide(now) if known else None
        if known is None or decision is None:
            return False
        await _carry_out(session, known, decision, now)
    return True


async def _carry_out(session: AsyncSession, known: JobSnapshot, decision: Decision, now: datetime) -> None:
    job, was_stopping = known.job, known.job.state is JobState.STOPPING
    decision = await _with_slots(session, known, decision)
    failure = None if _ends_well(known, decision) else await _failure_after(session, known, decision)
    match decision:
        case Transition():
            await gang_lifecycle.apply(session, job, decision, failure, now)
        case Stop() | Restart():
            await gang_lifecycle.apply(session, job, decision, failure, now)
            if decision.is_fault and not was_stopping:
                await incidents.open_incident(session, job, known.members, decision, failure, now)
        case Regroup():
            candidates = [] if decision.members.whole else await restore_candidates(session, job, job.generation + 1)
            await gang_lifecycle.change_members(session, job, decision, failure, now, candidates[0] if candidates else None)
            await incidents.open_incident(session, job, known.members, decision, failure, now)
    await incidents.note_state(session, job, now)


def _ends_well(known: JobSnapshot, decision: Decision) -> bool:
    """Whether no rank has failed, though some may have been ended: those of a script by SIGTERM."""
    ended = decision.reason is EndReason.TIME_LIMIT or (known.view.is_script and decision.reason is EndReason.PAUSED)
    return ended or decision.to in UNFAILED


async def _with_slots(session: AsyncSession, known: JobSnapshot, decision: Decision) -> Decision:
    """The decision, as a restart wherever there is room in case another job has got a slot that a rank was to be started again in."""
    if not isinstance(decision, Regroup):
        return decision
    shares = [NodeShare(rank.node_id, (rank.slot,)) for rank in known.members if rank.rank in decision.members.replaced]
    return decision if await still_free(session, shares) else decision.as_restart


async def _failure_after(session: AsyncSession, known: JobSnapshot, decision: Decision) -> dict[str, Any] | None:
    """The failure that the job's page shows from now on: kept until it runs again or ends well."""
    node_names = await node_rows.named(session, {rank.node_id for rank in known.ranks})
    if decision.reason in (EndReason.START_TIMEOUT, EndReason.STOP_TIMEOUT):
        return known.job.failure or _timeout(known, decision, node_names)
    hanging = known.generation if known.generation is not None and known.generation.ended_at is None else None
    suspicion = suspicion_of(hanging) if hanging is not None else None
    return culprits.describe(known.members, known.silent, decision, node_names, suspicion) or known.job.failure


def _timeout(known: JobSnapshot, decision: Decision, node_names: Mapping[str, str]) -> dict[str, Any] | None:
    late = [rank for rank in known.members if rank.pid is None] or known.members
    if not late or decision.reason is None:
        return None
    name = node_names.get(late[0].node_id, late[0].node_id)
    place = {"rank": late[0].rank, "node_name": name, "generation": late[0].generation}
    return {"kind": decision.reason.value, "message": decision.why, **place}
