"""Moves jobs along: decides for each what comes next, places those that want slots, then lets gangs grow and shrink. One
transaction per job and step."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from api.deps import Services
from api.loops import elasticity, ledger
from api.services import culprits, gang_lifecycle, incidents, job_lifecycle
from api.services.assignments import restore_candidates
from api.services.job_views import node_views, request_of
from api.services.known_jobs import Known, load, load_locked, still_free
from cluster.placement import NodeShare, Pending, Placement, place
from cluster.states import EndReason, JobState
from cluster.views import Decision
from db.models.jobs import JobRow
from db.models.nodes import NodeRow
from db.repositories import jobs as job_rows
from db.repositories import nodes as node_rows

#: One step follows a job through at most this many states; the rest waits for the next step.
MAX_PASSES = 5


async def step_once(services: Services, now: datetime) -> None:
    for _ in range(MAX_PASSES):
        if not await advance(services, now):
            break
    await place_waiting(services, now)
    await elasticity.step_once(services, now)
    await ledger.step_once(services, now)


async def advance(services: Services, now: datetime) -> int:
    """How many jobs have moved."""
    async with services.control.read() as session:
        known = await load(session)
    moved = 0
    for each in known:
        if each.decide(now) is not None:
            moved += await _decide(services, each.job.id, now)
    return moved


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
    names = await node_rows.named(session, {rank.node_id for rank in known.ranks})
    failure = failure_after(known, decision, names)
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


def failure_after(known: Known, decision: Decision, node_names: Mapping[str, str]) -> dict[str, Any] | None:
    """What the job's page shows as its failure from now on: kept until it runs again or ends well."""
    if decision.to in (JobState.RUNNING, JobState.RESIZING, JobState.QUEUED, JobState.COMPLETED, JobState.CANCELLED):
        return None
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


async def place_waiting(services: Services, now: datetime) -> None:
    async with services.control.read() as session:
        waiting = {known.job.id: known.job for known in await load(session) if known.wants_slots(now) and known.decide(now) is None}
        if not waiting:
            return
        nodes = await node_rows.present(session)
        views = node_views(nodes, await job_rows.holders(session))
    by_id = {node.id: node for node in nodes}
    for verdict in place([request_of(job) for job in waiting.values()], views):
        await _settle(services, waiting[verdict.job_id], verdict, by_id, now)


async def _settle(services: Services, waiting: JobRow, verdict: Placement | Pending, nodes: Mapping[str, NodeRow], now: datetime) -> None:
    if isinstance(verdict, Pending) and (waiting.pending or {}).get("text") == verdict.reason.text:
        return
    async with services.write() as session:
        known = await load_locked(session, waiting.id)
        if known is None or known.job.version != waiting.version or known.decide(now) is not None:
            return  # how its last ranks ended may have become known since, and that it would meet the same again
        job = known.job
        if isinstance(verdict, Pending):
            await job_lifecycle.set_pending(session, job, verdict.reason, now)
        elif await still_free(session, verdict.shares):
            candidates = await restore_candidates(session, job, job.generation + 1)
            source = candidates[0] if candidates else None
            await gang_lifecycle.start_generation(session, job, verdict, nodes, source, now)
            await incidents.note_restart(session, job, source.step if source else 0, now)
