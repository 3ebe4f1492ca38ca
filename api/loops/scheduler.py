"""Moves jobs along: decides for each its next state, places those that want slots, then lets gangs grow and shrink. Jobs share
transactions unless the members of their generations change; a job that raises is held up alone (`lifecycle/isolation.py`)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import Services
from paceline.api.loops import incident_causes, quiet_scripts
from paceline.api.loops.elasticity import Elasticity
from paceline.api.loops.placing import PlacementMemory
from paceline.api.services.history import culprits
from paceline.api.services.lifecycle import gang_lifecycle, incidents
from paceline.api.services.lifecycle.isolation import Inspection, Phase, PhaseTurns, each_phase
from paceline.api.services.scheduling.assignments import restore_candidates
from paceline.api.services.scheduling.job_snapshots import JobSnapshot, load, load_all_locked, load_among, still_free
from paceline.api.services.specs.job_views import suspicion_of
from paceline.cluster.policy.decisions import Decision, Regroup, Restart, Stop, Transition
from paceline.cluster.policy.placement import NodeShare
from paceline.cluster.states import EndReason, JobState
from paceline.db.repositories import experiments as experiment_rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories.open_work import OpenWork, open_work

logger = logging.getLogger(__name__)
#: One step follows a job through at most this many states, and moves at most so many jobs; the rest waits for the next step, which comes
#: at once. A step must end within the time that a stopping coordinator gives it, and placing must have its turn in a flood of ends.
MAX_PASSES, MOST_MOVES = 5, 256
#: States of a job that shows no failure.
UNFAILED = (JobState.RUNNING, JobState.RESIZING, JobState.QUEUED, JobState.COMPLETED, JobState.CANCELLED)


#: What a scheduler that knows nothing yet takes to be there.
EVERYTHING = OpenWork(*(True for _ in OpenWork._fields))
#: Decisions that jobs may share a transaction for: they lock nothing but the jobs and the nodes of their open ranks.
KEEPS_MEMBERS = (Transition, Stop, Restart)


@dataclass
class Scheduler:
    """The scheduler. State that it keeps from step to step only spares work: a new one looks at everything."""

    services: Services
    _placing: PlacementMemory = field(init=False)
    _elasticity: Elasticity = field(init=False)
    #: What the last step had to do, if it went well; each phase is run once more after that, to forget what it has noted of jobs.
    _done: OpenWork = field(default=EVERYTHING, init=False)
    #: All jobs that may move by themselves, where the present step has moved none.
    _unmoved: Sequence[JobSnapshot] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._placing, self._elasticity = PlacementMemory(self.services), Elasticity(self.services)

    async def step_once(self, now: datetime) -> None:
        """Run the phases that have anything to do, whichever of them fails. A single query tells which."""
        await self._discount_clock_step()
        async with self.services.control.read() as session:
            work = await open_work(session)
        wanted, self._done = OpenWork(*(is_now or was for is_now, was in zip(work, self._done, strict=True))), EVERYTHING
        self._unmoved = None
        phases: list[Phase] = [partial(quiet_scripts.step_once, self.services)] if wanted.quiet else []
        if any(wanted):
            phases += [self._advance, partial(self._place, wanted), self._grow, partial(self._find_causes, wanted)]
        await each_phase(phases, now)
        self._done = work

    async def _advance(self, now: datetime) -> None:
        self._unmoved = await advance_all(self.services, now)

    async def _place(self, wanted: OpenWork, now: datetime) -> None:
        if wanted.waiting or self._unmoved is None:
            self._unmoved = None  # as placing may move some
            await self._placing.step_once(now)

    async def _grow(self, now: datetime) -> None:
        await self._elasticity.step_once(now, self._unmoved)

    async def _find_causes(self, wanted: OpenWork, now: datetime) -> None:
        if wanted.open_causes or self._unmoved is None:
            await incident_causes.step_once(self.services, now)

    async def _discount_clock_step(self) -> None:
        """Take a step of the clock, or a suspend of the machine, from the times that jobs have held slots and experiments were running: no such
        time has passed."""
        uptime = self.services.uptime
        if step := uptime.clock_step:
            logger.warning("the clock was set by %+.0f s, or the machine was suspended; no time_limit and no wall_time counts that", step)
            async with self.services.write() as session:
                await job_rows.discount_held_time(session, step)
                await experiment_rows.discount_running_time(session, step)
            uptime.clock_step -= step


async def step_once(services: Services, now: datetime) -> None:
    """One step of a scheduler that has kept nothing."""
    await Scheduler(services).step_once(now)


async def advance_all(services: Services, now: datetime) -> Sequence[JobSnapshot] | None:
    """Follow jobs from state to state: first all of them, then those that have moved. Returns all of them where nothing was to be decided
    about any."""
    among, left = None, MOST_MOVES
    for _ in range(MAX_PASSES):
        known, moving = await _look(services, now, among)
        if not moving and among is None:
            return known
        moving = moving[:left]
        if not await _advance(services, moving, now):
            return None
        among, left = {each.known.job.id for each in moving}, left - len(moving)
        if left == 0:
            services.bus.nudge([bus.SCHEDULER])
            return None
    return None


@dataclass(frozen=True)
class MovingJob:
    """A job that something is decided about. `decision` None: deciding raises, which is told in the job's turn."""

    known: JobSnapshot
    decision: Decision | None


async def _look(
    services: Services, now: datetime, among: Collection[str] | None = None
) -> tuple[Sequence[JobSnapshot], Sequence[MovingJob]]:
    """(the jobs that may move by themselves, or those `among` these, as they are now; those that something is decided about)."""
    async with services.control.read() as session:
        up_since = services.uptime.since
        known = await (load(session, up_since) if among is None else load_among(session, among, up_since))
    turns = _turns(services, now)
    if among is None:
        services.troubles.forget_all_but(turns.task, {each.job.id for each in known})
    looks: list[tuple[JobSnapshot, Inspection[Decision]]] = [(each, turns.peek(each.subject, partial(each.decide, now))) for each in known]
    return known, [MovingJob(each, look.result) for each, look in looks if look.is_wanted]


def _turns(services: Services, now: datetime) -> PhaseTurns:
    return PhaseTurns(services, "decide what comes next for it", now)


async def _advance(services: Services, moving: Sequence[MovingJob], now: datetime) -> int:
    """Advance jobs by one state each: those that keep the members of their generation together, each of the others alone."""
    turns = _turns(services, now)
    together = [each.known for each in moving if isinstance(each.decision, KEEPS_MEMBERS)]
    alone = [each.known for each in moving if not isinstance(each.decision, KEEPS_MEMBERS)]
    moved = [await turns.take(each.subject, partial(_decide, services, [each], now)) or 0 for each in alone]
    return sum(moved) + await turns.take_together(together, lambda known: known.subject, lambda group: _decide(services, group, now))


async def _decide(services: Services, jobs: Sequence[JobSnapshot], now: datetime) -> int:
    """Decide again with everything locked: ranks that have ended since the first look must not be counted on, and one fault that ends
    several is one incident. Returns how many jobs have moved.

    Of several jobs, those that would now be regrouped are left to the next look: that takes locks of more nodes, which a report may hold
    that waits for this transaction."""
    async with services.write() as session:
        with session.no_autoflush:  # what is written for all of them goes in a few statements
            locked = await load_all_locked(session, [each.job.id for each in jobs], services.uptime.since)
            decided = [(known, decision) for known in locked if (decision := known.decide(now)) is not None]
            if len(jobs) > 1:
                decided = [(known, decision) for known, decision in decided if isinstance(decision, KEEPS_MEMBERS)]
            decided = [(known, await _with_slots(session, known, decision)) for known, decision in decided]
            node_names = await _names_in_failures(session, decided)
            for known, decision in decided:
                await _carry_out(session, known, decision, node_names, now)
            await gang_lifecycle.tell_nodes(session, *(known.job for known, decision in decided if _tells_ranks(decision)))
            await incidents.note_states(session, [known.job for known, _ in decided], now)
    return len(decided)


def _tells_ranks(decision: Decision) -> bool:
    """Whether ranks are told something by a change of state. While a job runs they are told the same as while it started, and a regrouped
    generation has told them already."""
    return not isinstance(decision, Regroup) and decision.to is not JobState.RUNNING


async def _names_in_failures(session: AsyncSession, decided: Sequence[tuple[JobSnapshot, Decision]]) -> Mapping[str, str]:
    """The names of the nodes of all jobs whose failure is to be described."""
    failed = [known for known, decision in decided if not _ends_well(known, decision)]
    return await node_rows.named(session, {rank.node_id for known in failed for rank in known.ranks})


async def _carry_out(session: AsyncSession, known: JobSnapshot, decision: Decision, node_names: Mapping[str, str], now: datetime) -> None:
    job, was_stopping = known.job, known.job.state is JobState.STOPPING
    failure = None if _ends_well(known, decision) else _failure_after(known, decision, node_names)
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


def _failure_after(known: JobSnapshot, decision: Decision, node_names: Mapping[str, str]) -> dict[str, Any] | None:
    """The failure that the job's page shows from now on: kept until it runs again or ends well."""
    if decision.reason in (EndReason.START_TIMEOUT, EndReason.STOP_TIMEOUT):
        return known.job.failure or _timeout(known, decision, node_names)
    hanging = known.generation if known.generation is not None and known.generation.ended_at is None else None
    suspicion = suspicion_of(hanging) if hanging is not None else None
    found = culprits.describe(known.members, known.reach.silent, decision, node_names, suspicion)
    return found if found and not culprits.knows_better(known.job.failure, found, known.members) else known.job.failure


def _timeout(known: JobSnapshot, decision: Decision, node_names: Mapping[str, str]) -> dict[str, Any] | None:
    late = [rank for rank in known.members if rank.pid is None] or known.members
    if not late or decision.reason is None:
        return None
    name = node_names.get(late[0].node_id, late[0].node_id)
    place = {"rank": late[0].rank, "node_name": name, "generation": late[0].generation}
    return {"kind": decision.reason.value, "message": decision.why, **place}
