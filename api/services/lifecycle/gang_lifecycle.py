"""Carries out the scheduler's decisions about a job on its gang: generations begin, change their members and end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import nudge_after_commit
from paceline.api.core.identity import SYSTEM
from paceline.api.services.lifecycle import gang_rows, rank_lifecycle
from paceline.api.services.lifecycle.job_lifecycle import record_event
from paceline.api.services.lifecycle.node_lifecycle import bump_desired_revision
from paceline.api.services.lifecycle.state_change import compare_and_set
from paceline.api.services.specs.stored_specs import starts_in_own_folder
from paceline.cluster.policy.decisions import BACK_TO_QUEUE, Decision, Regroup, ResizeGang, Restart, Stop, Transition
from paceline.cluster.policy.placement import NodeShare, Placement
from paceline.cluster.policy.rank_numbers import listed
from paceline.cluster.states import JOB_TRANSITIONS, TERMINAL_JOB_STATES, EndReason, Intent, JobState, RankState, check_transition
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.jobs import JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import earlier_generations as earlier_rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.training.link import FailureReport


@dataclass(frozen=True)
class Start:
    """A job that is to get a new generation, where, and what its ranks should restore first."""

    job: JobRow
    placement: Placement
    source: CheckpointRow | None


async def start_generations(session: AsyncSession, starts: Sequence[Start], nodes: Mapping[str, NodeRow], now: datetime) -> None:
    """Fence off all earlier generations of these jobs and assign the ranks of new ones."""
    if not starts:
        return
    before = [start.job.state for start in starts]
    left = await _left_folders(session, starts)
    for start in starts:
        job, to = start.job, JobState.STARTING if start.job.state is JobState.QUEUED else start.job.state
        _check_unless_same(job.state, to)
        values = {"state": to, "generation": job.generation + 1, "started_at": job.started_at or now}
        await compare_and_set(session, job, **values, state_since=now, pending=None)
        session.add(gang_rows.placed_generation(job, start.source, now, world_size=start.placement.slots))
    await session.flush()  # ranks refer to their generations
    for start in starts:
        session.add_all(gang_rows.placed_ranks(start.job, start.placement.shares, now))
    await session.flush()
    await tell_nodes(session, *(start.job for start in starts))
    for start, state in zip(starts, before, strict=True):
        await _placed_event(session, start, state, nodes, left.get(start.job.id, {}), now)
    nudge_after_commit(session, bus.EXPERIMENTS)


async def _left_folders(session: AsyncSession, starts: Sequence[Start]) -> dict[str, dict[str, str]]:
    """Names of nodes by id, by job: those that have what a script saved last in the job's own folder, and that it does not get again."""
    own = {start.job.id: {share.node_id for share in start.placement.shares} for start in starts if starts_in_own_folder(start.job)}
    last = await earlier_rows.last_held(session, {start.job.id for start in starts if start.job.generation} & own.keys())
    left = {job_id: [node_id for node_id, _ in held if node_id not in own[job_id]] for job_id, held in last.items()}
    names = await node_rows.named(session, {node_id for node_ids in left.values() for node_id in node_ids})
    return {job_id: {node_id: names.get(node_id, node_id) for node_id in node_ids} for job_id, node_ids in left.items()}


async def _placed_event(
    session: AsyncSession, start: Start, before: JobState, nodes: Mapping[str, NodeRow], left: Mapping[str, str], now: datetime
) -> None:
    """Record where a generation starts. `left`: see `_left_folders`."""
    job, placement, source = start.job, start.placement, start.source
    names = ", ".join(nodes[share.node_id].name for share in placement.shares)
    wanted = "" if placement.slots == job.world_size else f" of {job.world_size}"
    cause = f"room for {placement.slots}{wanted} {'rank' if placement.slots == 1 else 'ranks'} on {names}"
    from_step = f" from step {source.step}" if source else ""
    places = [share.node_id for share in placement.shares]
    data = {"from": before.value, "to": job.state.value, "generation": job.generation, "nodes": places}
    message = f"generation {job.generation} starts on {names}{from_step}"
    if left:
        data["left_folders"] = [*left]
        message += f", without what the script saved in the job's own folder on {', '.join(left.values())}"
    await record_event(session, job, "job.placed", SYSTEM, cause, message, now, data)


async def apply(
    session: AsyncSession, job: JobRow, decision: Transition | Stop | Restart, failure: dict[str, Any] | None, now: datetime
) -> None:
    """Carry out a decision that leaves the members of the generation as they are. The caller tells the nodes: see `tell_nodes`."""
    _check_unless_same(job.state, decision.to)
    before, reason = job.state, decision.reason or job.end_reason
    await compare_and_set(session, job, **_values_after(job, decision, failure, now))
    if decision.ends_generation:
        await _end_generation(session, job, reason, now)
    data = {"from": before.value, "to": decision.to.value, "reason": decision.reason, "restarts": job.restarts}
    await record_event(session, job, "job.state", SYSTEM, decision.why, f"{before.value} -> {decision.to.value}", now, data)
    if decision.to in (*TERMINAL_JOB_STATES, JobState.PAUSED):
        nudge_after_commit(session, bus.EXPERIMENTS)


async def change_members(
    session: AsyncSession,
    job: JobRow,
    decision: Regroup | ResizeGang,
    failure: dict[str, Any] | None,
    now: datetime,
    source: CheckpointRow | None = None,
) -> None:
    """Make living processes the next generation, in the slots where they are. All other ranks of the last one are fenced off, or leave
    it in good order, where nothing was wrong with it. `source` is what they should restore first if they fall back."""
    _check_unless_same(job.state, decision.to)
    before, number, members = job.state, job.generation, decision.members
    old = {rank.rank: rank for rank in (await job_rows.ranks(session, [(job.id, number)]))[job.id, number]}
    joining, replaced = [old[rank] for rank in members.joining], [old[rank] for rank in members.replaced]
    living = [*(old[rank] for rank in members.survivors), *joining]
    parked = [*(old[rank] for rank in members.parking), *gang_rows.still_parked(list(old.values()), joining)]
    await _end_generation(session, job, decision.reason, now)
    await compare_and_set(session, job, **_values_after(job, decision, failure, now), generation=number + 1)
    start = max(rank.step for rank in living) if members.whole else source.step if source else 0
    size = len(living) + len(replaced)
    session.add(gang_rows.living_generation(job, now, world_size=size, start_step=start, at_boundary=decision.at_boundary))
    await session.flush()
    new = gang_rows.successors(living, replaced, parked, now)
    for rank in new:
        rank.step = min(rank.step or 0, start)
    session.add_all(new)
    for rank in (*living, *parked):
        rank_lifecycle.move(rank, RankState.MOVED, now)
    await session.flush()
    await tell_nodes(session, job)
    await _members_event(session, job, decision, before, [rank for rank in old.values() if not rank.parked], living, now)


async def _members_event(
    session: AsyncSession,
    job: JobRow,
    decision: Regroup | ResizeGang,
    before: JobState,
    old: Sequence[RankRow],
    new: Sequence[RankRow],
    now: datetime,
) -> None:
    members = decision.members
    data = {
        "from": before.value,
        "to": decision.to.value,
        "reason": decision.reason,
        "survivors": list(members.survivors),
        "joined": list(members.joining),
        "replaced": list(members.replaced),
        "parked": list(members.parking),
        "left": [rank.rank for rank in old if rank not in new and rank.rank not in members.parking],
        "ranks_before": len(old),
        "ranks_after": len(new) + len(members.replaced),
    }
    at_fault = "job.closed_up" if members.whole else "job.fell_back"
    type = _change_of(len(old), len(new)) if decision.at_boundary else at_fault
    message = f"{len(members.survivors)} of {len(old)} ranks go {'on' if members.whole else 'back'} as generation {job.generation}"
    message += f", {len(members.joining)} join them" if members.joining else ""
    message += f", {len(members.replaced)} start(s) again" if members.replaced else ""
    await record_event(session, job, type, SYSTEM, decision.why, message, now, data)


def _change_of(before: int, after: int) -> str:
    return "job.grew" if after > before else "job.shrank" if after < before else "job.moved"


async def park(session: AsyncSession, job: JobRow, shares: Sequence[NodeShare], why: str, now: datetime) -> None:
    """Start parked ranks beside the newest generation."""
    gang = (await job_rows.ranks(session, [(job.id, job.generation)]))[job.id, job.generation]
    new = gang_rows.parked_ranks(job, gang, shares, now)
    session.add_all(new)
    await session.flush()
    await bump_desired_revision(session, *{rank.node_id for rank in new})
    ranks = [rank.rank for rank in new]
    message = f"rank {listed(ranks)} start(s), to join later"
    await record_event(session, job, "job.parked", SYSTEM, why, message, now, {"ranks": ranks, "nodes": [rank.node_id for rank in new]})


async def release_parked(session: AsyncSession, job: JobRow, ranks: Collection[int], now: datetime) -> None:
    """Stop parked ranks that are of no use any more."""
    going = await _stop_parked(session, job, ranks, now)
    message = f"rank {listed(going)} has no place to wait for, and leaves"
    await record_event(session, job, "job.let_go", SYSTEM, "its slot is wanted, or it is one too many", message, now)


async def give_up_parked(session: AsyncSession, job: JobRow, ranks: Collection[int], why: str, now: datetime) -> None:
    """Stop parked ranks that do not get ready. They count as failed from now on, whatever becomes of their processes."""
    going = await _stop_parked(session, job, ranks, now)
    for rank in going:
        report = FailureReport(kind="exit", rank=rank.rank, message=why, exception=TimeoutError.__name__, time=now.timestamp())
        rank.outcome, rank.failure = "failed", msgspec.to_builtins(report)
    await session.flush()
    message = f"rank {listed(going)} did not get ready to join, and is stopped"
    await record_event(session, job, "job.let_go", SYSTEM, why, message, now)


async def _stop_parked(session: AsyncSession, job: JobRow, ranks: Collection[int], now: datetime) -> list[RankRow]:
    gang = (await job_rows.ranks(session, [(job.id, job.generation)]))[job.id, job.generation]
    going = [rank for rank in gang if rank.parked and rank.rank in ranks and rank.state not in (RankState.EXITED, RankState.LOST)]
    for rank in going:
        rank_lifecycle.move(rank, RankState.STOPPING, now)
    await session.flush()
    await bump_desired_revision(session, *{rank.node_id for rank in going})
    return going


def _check_unless_same(old: JobState, new: JobState) -> None:
    """Check a transition. A decision may leave the state as it is, and change only the reason or the generation."""
    if new is not old:
        check_transition(JOB_TRANSITIONS, old, new)


def _values_after(job: JobRow, decision: Decision | ResizeGang, failure: dict[str, Any] | None, now: datetime) -> dict[str, Any]:
    values: dict[str, Any] = {"state": decision.to, "end_reason": decision.reason, "state_since": now, "failure": failure, "pending": None}
    if decision.counts_as_restart:
        values["restarts"] = job.restarts + 1
    if isinstance(decision, Stop) and decision.waits_for_user:
        values["desired"] = Intent.PAUSE
    if decision.to is JobState.QUEUED and job.end_reason not in BACK_TO_QUEUE:
        values["queued_at"] = now
    if decision.to in TERMINAL_JOB_STATES:
        values["ended_at"] = now
    return values


async def _end_generation(session: AsyncSession, job: JobRow, reason: EndReason | None, now: datetime) -> None:
    generation = await job_rows.generation(session, job.id, job.generation)
    if generation is not None and generation.ended_at is None:
        generation.ended_at, generation.end_reason = now, reason
        job.ran_seconds = max(0.0, job.ran_seconds + (now - generation.started_at).total_seconds())


async def tell_nodes(session: AsyncSession, *jobs: JobRow) -> None:
    """Have all nodes with open ranks of these jobs told anew what they are to run."""
    if jobs:
        await bump_desired_revision(session, *await job_rows.nodes_with_open_ranks(session, [job.id for job in jobs]))
