"""What the scheduler decides about a job, carried out on its gang: generations begin, change their members and end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from api.services import gang_rows
from api.services.identity import SYSTEM
from api.services.job_lifecycle import record_event
from api.services.node_lifecycle import reconsider
from api.services.state_change import compare_and_set
from cluster.placement import NodeShare, Placement
from cluster.states import JOB_TRANSITIONS, TERMINAL_JOB_STATES, EndReason, JobState, RankState, check_transition
from cluster.views import Decision
from db.models.checkpoints import CheckpointRow
from db.models.jobs import JobRow, RankRow
from db.models.nodes import NodeRow
from db.repositories import jobs as job_rows


async def start_generation(
    session: AsyncSession, job: JobRow, placement: Placement, nodes: Mapping[str, NodeRow], source: CheckpointRow | None, now: datetime
) -> None:
    """Fence off whatever came before and assign the ranks of a new generation. `source` is what they should restore first."""
    to = JobState.STARTING if job.state is JobState.QUEUED else job.state
    _check_unless_same(job.state, to)
    before, number = job.state, job.generation + 1
    started = job.started_at or now
    await compare_and_set(session, job, state=to, generation=number, started_at=started, state_since=now, pending=None)
    session.add(gang_rows.placed_generation(job, source, now, world_size=placement.slots))
    await session.flush()
    session.add_all(gang_rows.placed_ranks(job, placement.shares, now))
    await session.flush()
    await _reconsider_nodes(session, job)
    names = ", ".join(nodes[share.node_id].name for share in placement.shares)
    wanted = "" if placement.slots == job.world_size else f" of {job.world_size}"
    cause = f"room for {placement.slots}{wanted} {'rank' if placement.slots == 1 else 'ranks'} on {names}"
    from_step = f" from step {source.step}" if source else ""
    data = {"from": before.value, "to": to.value, "generation": number, "nodes": [share.node_id for share in placement.shares]}
    await record_event(session, job, "job.placed", SYSTEM, cause, f"generation {number} starts on {names}{from_step}", now, data)


async def apply(session: AsyncSession, job: JobRow, decision: Decision, failure: dict[str, Any] | None, now: datetime) -> None:
    """Carry out a decision of `cluster.decide`."""
    _check_unless_same(job.state, decision.to)
    before, reason = job.state, decision.reason or job.end_reason
    await compare_and_set(session, job, **_values_after(job, decision, failure, now))
    await _reconsider_nodes(session, job)
    if decision.ends_generation or decision.to in (JobState.QUEUED, JobState.PAUSED, *TERMINAL_JOB_STATES):
        await _end_generation(session, job, reason, now)
    data = {"from": before.value, "to": decision.to.value, "reason": decision.reason, "restarts": job.restarts}
    await record_event(session, job, "job.state", SYSTEM, decision.why, f"{before.value} -> {decision.to.value}", now, data)


async def change_members(
    session: AsyncSession,
    job: JobRow,
    decision: Decision,
    failure: dict[str, Any] | None,
    now: datetime,
    source: CheckpointRow | None = None,
) -> None:
    """Make living processes the next generation, in the slots where they are. Whatever else the last one had is fenced off, or
    leaves it in good order, where nothing was wrong with it. `source` is what they should restore first if they fall back."""
    _check_unless_same(job.state, decision.to)
    before, number = job.state, job.generation
    old = {rank.rank: rank for rank in (await job_rows.ranks(session, [(job.id, number)]))[job.id, number]}
    joining, replaced = [old[rank] for rank in decision.joining], [old[rank] for rank in decision.replaced]
    members = [*(old[rank] for rank in decision.survivors), *joining]
    parked = [*(old[rank] for rank in decision.parking), *gang_rows.still_parked(list(old.values()), joining)]
    await _end_generation(session, job, decision.reason, now)
    await compare_and_set(session, job, **_values_after(job, decision, failure, now), generation=number + 1)
    start = (source.step if source else 0) if decision.falls_back else max(rank.step for rank in members)
    size = len(members) + len(replaced)
    session.add(gang_rows.living_generation(job, now, world_size=size, start_step=start, at_boundary=decision.at_boundary))
    await session.flush()
    new = gang_rows.successors(members, replaced, parked, now)
    for rank in new:
        rank.step = min(rank.step or 0, start)
    session.add_all(new)
    for rank in (*members, *parked):
        rank.state, rank.updated_at = RankState.MOVED, now
    await session.flush()
    await _reconsider_nodes(session, job)
    await _members_event(session, job, decision, before, [rank for rank in old.values() if not rank.parked], members, now)


async def _members_event(
    session: AsyncSession,
    job: JobRow,
    decision: Decision,
    before: JobState,
    old: Sequence[RankRow],
    new: Sequence[RankRow],
    now: datetime,
) -> None:
    data = {
        "from": before.value,
        "to": decision.to.value,
        "reason": decision.reason,
        "survivors": list(decision.survivors),
        "joined": list(decision.joining),
        "replaced": list(decision.replaced),
        "parked": list(decision.parking),
        "left": [rank.rank for rank in old if rank not in new and rank.rank not in decision.parking],
        "ranks_before": len(old),
        "ranks_after": len(new) + len(decision.replaced),
    }
    at_fault = "job.fell_back" if decision.falls_back else "job.closed_up"
    type = _change_of(len(old), len(new)) if decision.at_boundary else at_fault
    message = f"{len(decision.survivors)} of {len(old)} ranks go {'back' if decision.falls_back else 'on'} as generation {job.generation}"
    message += f", {len(decision.joining)} join them" if decision.joining else ""
    message += f", {len(decision.replaced)} start(s) again" if decision.replaced else ""
    await record_event(session, job, type, SYSTEM, decision.why, message, now, data)


def _change_of(before: int, after: int) -> str:
    return "job.grew" if after > before else "job.shrank" if after < before else "job.moved"


async def park(session: AsyncSession, job: JobRow, shares: Sequence[NodeShare], why: str, now: datetime) -> None:
    """Start ranks without a place beside the newest generation."""
    gang = (await job_rows.ranks(session, [(job.id, job.generation)]))[job.id, job.generation]
    new = gang_rows.parked_ranks(job, gang, shares, now)
    session.add_all(new)
    await session.flush()
    await reconsider(session, *{rank.node_id for rank in new})
    ranks = [rank.rank for rank in new]
    message = f"rank {', '.join(map(str, ranks))} start(s), to join later"
    await record_event(session, job, "job.parked", SYSTEM, why, message, now, {"ranks": ranks, "nodes": [rank.node_id for rank in new]})


async def let_go(session: AsyncSession, job: JobRow, ranks: Collection[int], now: datetime) -> None:
    """Stop parked ranks that are of no use any more."""
    gang = (await job_rows.ranks(session, [(job.id, job.generation)]))[job.id, job.generation]
    going = [rank for rank in gang if rank.parked and rank.rank in ranks and rank.state not in (RankState.EXITED, RankState.LOST)]
    for rank in going:
        rank.state, rank.updated_at = RankState.STOPPING, now
    await session.flush()
    await reconsider(session, *{rank.node_id for rank in going})
    message = f"rank {', '.join(str(rank.rank) for rank in going)} has no place to wait for, and leaves"
    await record_event(session, job, "job.let_go", SYSTEM, "its slot is wanted, or it is one too many", message, now)


def _check_unless_same(old: JobState, new: JobState) -> None:
    """A decision may leave the state as it is, and change only the reason or the generation."""
    if new is not old:
        check_transition(JOB_TRANSITIONS, old, new)


def _values_after(job: JobRow, decision: Decision, failure: dict[str, Any] | None, now: datetime) -> dict[str, Any]:
    values: dict[str, Any] = {"state": decision.to, "end_reason": decision.reason, "state_since": now, "failure": failure, "pending": None}
    if decision.counts_as_restart:
        values["restarts"] = job.restarts + 1
    if decision.to is JobState.QUEUED:
        values["queued_at"] = now
    if decision.to in TERMINAL_JOB_STATES:
        values["ended_at"] = now
    return values


async def _end_generation(session: AsyncSession, job: JobRow, reason: EndReason | None, now: datetime) -> None:
    generation = await job_rows.generation(session, job.id, job.generation)
    if generation is not None and generation.ended_at is None:
        generation.ended_at, generation.end_reason = now, reason


async def _reconsider_nodes(session: AsyncSession, job: JobRow) -> None:
    await reconsider(session, *await job_rows.nodes_with_open_ranks(session, job.id))
