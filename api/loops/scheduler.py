"""Moves jobs along: decides for each what comes next, and places those that want slots. One transaction per job and step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from api.deps import Services
from api.services import lifecycle
from api.services.assignments import restore_candidates
from api.services.job_views import describe_failure, job_view, node_views, request_of
from cluster.decide import Decision, decide, wants_slots
from cluster.placement import Pending, Placement, place
from cluster.states import EndReason, JobState, NodeState
from db.models.jobs import GenerationRow, JobRow, RankRow
from db.models.nodes import NodeRow
from db.repositories import jobs as job_rows
from db.repositories import nodes as node_rows

#: One step follows a job through at most this many states; the rest waits for the next step.
MAX_PASSES = 5


@dataclass(frozen=True)
class Known:
    """One undecided job as read at the start of a pass."""

    job: JobRow
    generation: GenerationRow | None
    ranks: Sequence[RankRow]

    def decide(self, now: datetime) -> Decision | None:
        return decide(job_view(self.job, self.generation, self.ranks), now)

    def wants_slots(self, now: datetime) -> bool:
        return wants_slots(job_view(self.job, self.generation, self.ranks), now)


async def step_once(services: Services, now: datetime) -> None:
    for _ in range(MAX_PASSES):
        if not await advance(services, now):
            break
    await place_waiting(services, now)


async def advance(services: Services, now: datetime) -> int:
    """How many jobs have moved."""
    async with services.control.read() as session:
        known = await load(session)
    moved = 0
    for each in known:
        decision = each.decide(now)
        if decision is not None:
            moved += await _carry_out(services, each, decision, now)
    return moved


async def load(session: AsyncSession) -> list[Known]:
    jobs = await job_rows.undecided(session)
    keys = [(job.id, job.generation) for job in jobs if job.generation]
    generations, ranks = await job_rows.generations(session, keys), await job_rows.ranks(session, keys)
    return [Known(job, generations.get((job.id, job.generation)), ranks.get((job.id, job.generation), [])) for job in jobs]


async def _carry_out(services: Services, known: Known, decision: Decision, now: datetime) -> bool:
    async with services.write() as session:
        job = await job_rows.get_locked(session, known.job.id)
        if job is None or job.version != known.job.version:
            return False
        names = await node_rows.named(session, {rank.node_id for rank in known.ranks})
        await lifecycle.apply(session, job, decision, failure_after(known, decision, names), now)
    return True


def failure_after(known: Known, decision: Decision, node_names: Mapping[str, str]) -> dict[str, Any] | None:
    """What the job's page shows as its failure from now on: kept until it runs again or ends well."""
    if decision.to in (JobState.RUNNING, JobState.QUEUED, JobState.COMPLETED, JobState.CANCELLED):
        return None
    if decision.reason in (EndReason.START_TIMEOUT, EndReason.STOP_TIMEOUT):
        return known.job.failure or _timeout(known, decision, node_names)
    return describe_failure(known.ranks, node_names) or known.job.failure


def _timeout(known: Known, decision: Decision, node_names: Mapping[str, str]) -> dict[str, Any] | None:
    late = [rank for rank in known.ranks if rank.pid is None] or list(known.ranks)
    if not late or decision.reason is None:
        return None
    name = node_names.get(late[0].node_id, late[0].node_id)
    place = {"rank": late[0].rank, "node_name": name, "generation": late[0].generation}
    return {"kind": decision.reason.value, "message": decision.why, **place}


async def place_waiting(services: Services, now: datetime) -> None:
    async with services.control.read() as session:
        waiting = {known.job.id: known.job for known in await load(session) if known.wants_slots(now)}
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
        job = await job_rows.get_locked(session, waiting.id)
        if job is None or job.version != waiting.version:
            return
        if isinstance(verdict, Pending):
            await lifecycle.set_pending(session, job, verdict.reason, now)
        elif await _still_free(session, verdict):
            candidates = await restore_candidates(session, job, job.generation + 1)
            await lifecycle.start_generation(session, job, verdict, nodes, candidates[0] if candidates else None, now)


async def _still_free(session: AsyncSession, placement: Placement) -> bool:
    """A node may have been cordoned since the snapshot; and where we stalled, another replica may have given the same slots. The
    locks on the nodes keep the answer true until the commit."""
    for share in sorted(placement.shares, key=lambda share: share.node_id):
        node = await node_rows.get_locked(session, share.node_id)
        if node is None or node.state is not NodeState.READY:
            return False
        if {rank.slot for rank, _ in await job_rows.holders(session, share.node_id)} & set(share.slots):
            return False
    return True
