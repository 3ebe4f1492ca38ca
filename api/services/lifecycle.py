"""The only writer of the states of jobs, nodes and checkpoints.

Each change is a compare-and-set on (state, version) along the transition table, and writes its event in the same
transaction. Nodes whose desired assignments it changes get a new revision and a nudge.

Order of locks, so that no two transactions wait for each other: job, nodes (`known_jobs.lock_ranks`), ranks, checkpoints, events.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from typing import Any, cast

from sqlalchemy import CursorResult, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm.attributes import set_committed_value

from api.deps import nudge_after_commit
from api.schemas.common import Actor
from api.services import bus, events, gang_rows
from api.services.identity import SYSTEM
from cluster.placement import NodeShare, Placement, Reason
from cluster.states import (
    CHECKPOINT_TRANSITIONS,
    JOB_TRANSITIONS,
    NODE_TRANSITIONS,
    TERMINAL_JOB_STATES,
    CheckpointState,
    EndReason,
    Intent,
    JobState,
    NodeState,
    RankState,
    check_transition,
)
from cluster.views import Decision
from db.models.checkpoints import CheckpointRow
from db.models.jobs import JobRow, RankRow
from db.models.nodes import NodeRow
from db.repositories import jobs as job_rows
from db.repositories import nodes as node_rows
from training.spec import JobSpec


class StaleStateError(Exception):
    """Somebody else changed the row since it was read: read it again and decide anew."""


# --- jobs


async def submit(session: AsyncSession, spec: JobSpec, actor: Actor, now: datetime, restored_from: CheckpointRow | None = None) -> JobRow:
    job = JobRow(
        name=spec.name,
        project=spec.project,
        priority=spec.priority,
        labels=dict(spec.labels),
        state=JobState.QUEUED,
        spec=spec.model_dump(mode="json"),
        world_size=spec.world_size,
        restored_from=restored_from.id if restored_from else None,
        created_by=actor.name,
        created_at=now,
        queued_at=now,
        state_since=now,
    )
    session.add(job)
    await session.flush()
    cause = f"restored from step {restored_from.step} of job {restored_from.job_id}" if restored_from else "submitted"
    await _job_event(session, job, "job.submitted", actor, cause, f"{job.name} was submitted", now)
    nudge_after_commit(session, bus.SCHEDULER)
    return job


async def want(session: AsyncSession, job: JobRow, desired: Intent, actor: Actor, now: datetime) -> None:
    """Record what the user wants; the scheduler makes it so."""
    await _compare_and_set(session, job, desired=desired)
    await _job_event(session, job, "job.intent", actor, f"{actor.name} asked for it", f"{desired.value} was asked for", now)
    nudge_after_commit(session, bus.SCHEDULER)


async def apply(session: AsyncSession, job: JobRow, decision: Decision, failure: dict[str, Any] | None, now: datetime) -> None:
    """Carry out a decision of `cluster.decide`."""
    check_unless_same(job.state, decision.to)
    before, reason = job.state, decision.reason or job.end_reason
    await _compare_and_set(session, job, **_values_after(job, decision, failure, now))
    await _reconsider_nodes(session, job)
    if decision.ends_generation or decision.to in (JobState.QUEUED, JobState.PAUSED, *TERMINAL_JOB_STATES):
        await _end_generation(session, job, reason, now)
    data = {"from": before.value, "to": decision.to.value, "reason": decision.reason, "restarts": job.restarts}
    await _job_event(session, job, "job.state", SYSTEM, decision.why, f"{before.value} -> {decision.to.value}", now, data)


def check_unless_same(old: JobState, new: JobState) -> None:
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


async def change_members(session: AsyncSession, job: JobRow, decision: Decision, failure: dict[str, Any] | None, now: datetime) -> None:
    """Make living processes the next generation, in the slots where they are. Whatever else the last one had is fenced off, or
    leaves it in good order, where nothing was wrong with it."""
    check_unless_same(job.state, decision.to)
    before, number = job.state, job.generation
    old = {rank.rank: rank for rank in (await job_rows.ranks(session, [(job.id, number)]))[job.id, number]}
    joining = [old[rank] for rank in decision.joining]
    members = [*(old[rank] for rank in decision.survivors), *joining]
    parked = gang_rows.still_parked(list(old.values()), joining)
    await _end_generation(session, job, decision.reason, now)
    await _compare_and_set(session, job, **_values_after(job, decision, failure, now), generation=number + 1)
    start = max(rank.step for rank in members)
    session.add(gang_rows.living_generation(job, now, world_size=len(members), start_step=start, at_boundary=decision.at_boundary))
    await session.flush()
    session.add_all(gang_rows.successors(members, parked, now))
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
        "left": [rank.rank for rank in old if rank not in new],
        "ranks_before": len(old),
        "ranks_after": len(new),
    }
    type = "job.closed_up" if not decision.at_boundary else _change_of(len(old), len(new))
    message = f"{len(decision.survivors)} of {len(old)} ranks go on as generation {job.generation}"
    message += f", {len(decision.joining)} join them" if decision.joining else ""
    await _job_event(session, job, type, SYSTEM, decision.why, message, now, data)


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
    await _job_event(session, job, "job.parked", SYSTEM, why, message, now, {"ranks": ranks, "nodes": [rank.node_id for rank in new]})


async def let_go(session: AsyncSession, job: JobRow, ranks: Collection[int], now: datetime) -> None:
    """Stop parked ranks that are of no use any more."""
    gang = (await job_rows.ranks(session, [(job.id, job.generation)]))[job.id, job.generation]
    going = [rank for rank in gang if rank.parked and rank.rank in ranks and rank.state not in (RankState.EXITED, RankState.LOST)]
    for rank in going:
        rank.state, rank.updated_at = RankState.STOPPING, now
    await session.flush()
    await reconsider(session, *{rank.node_id for rank in going})
    message = f"rank {', '.join(str(rank.rank) for rank in going)} has no place to wait for, and leaves"
    await _job_event(session, job, "job.let_go", SYSTEM, "its slot is wanted, or it is one too many", message, now)


async def resize(session: AsyncSession, job: JobRow, world_size: int, actor: Actor, now: datetime) -> None:
    """Record how many ranks the job is to have; the scheduler makes it so."""
    before = job.world_size
    await _compare_and_set(session, job, world_size=world_size)
    message = f"{world_size} rank{'' if world_size == 1 else 's'} asked for instead of {before}"
    data = {"ranks_before": before, "ranks_after": world_size}
    await _job_event(session, job, "job.resize", actor, f"{actor.name} asked for it", message, now, data)
    nudge_after_commit(session, bus.SCHEDULER)


async def correct_failure(session: AsyncSession, job: JobRow, generation: int, failure: dict[str, Any], reason: EndReason | None) -> None:
    """The culprit was heard of after its victims: for as long as the job shows the failure of that generation."""
    if job.failure is not None and job.failure.get("generation") == generation and job.failure != failure:
        await _compare_and_set(session, job, failure=failure, end_reason=reason if job.end_reason else None)


async def start_generation(
    session: AsyncSession, job: JobRow, placement: Placement, nodes: Mapping[str, NodeRow], source: CheckpointRow | None, now: datetime
) -> None:
    """Fence off whatever came before and assign the ranks of a new generation. `source` is what they should restore first."""
    to = JobState.STARTING if job.state is JobState.QUEUED else job.state
    if to is not job.state:
        check_transition(JOB_TRANSITIONS, job.state, to)
    before, number = job.state, job.generation + 1
    started = job.started_at or now
    await _compare_and_set(session, job, state=to, generation=number, started_at=started, state_since=now, pending=None)
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
    await _job_event(session, job, "job.placed", SYSTEM, cause, f"generation {number} starts on {names}{from_step}", now, data)


async def set_pending(session: AsyncSession, job: JobRow, reason: Reason | None, now: datetime) -> None:
    """Say why the job waits, or is smaller than it should be; the history only notes when the kind of reason changes."""
    before = (job.pending or {}).get("code")
    job.pending = asdict(reason) if reason is not None else None
    await session.flush()
    if reason is not None and before != reason.code:
        await _job_event(session, job, "job.pending", SYSTEM, reason.code, reason.text, now)


async def _end_generation(session: AsyncSession, job: JobRow, reason: EndReason | None, now: datetime) -> None:
    generation = await job_rows.generation(session, job.id, job.generation)
    if generation is not None and generation.ended_at is None:
        generation.ended_at, generation.end_reason = now, reason


async def _reconsider_nodes(session: AsyncSession, job: JobRow) -> None:
    await reconsider(session, *await job_rows.nodes_with_open_ranks(session, job.id))


async def job_event(session: AsyncSession, job: JobRow, type: str, cause: str, message: str, now: datetime, data: dict[str, Any]) -> None:
    """What the coordinator has found out about a job that changes no state."""
    await _job_event(session, job, type, SYSTEM, cause, message, now, data)


async def _job_event(
    session: AsyncSession, job: JobRow, type: str, actor: Actor, cause: str, message: str, now: datetime, data: dict[str, Any] | None = None
) -> None:
    facts = {"state": job.state.value, "desired": job.desired.value, **(data or {})}
    await events.record(
        session,
        type=type,
        actor=actor,
        cause=cause,
        message=message,
        job_id=job.id,
        generation=job.generation or None,
        data=facts,
        time=now,
    )


# --- nodes


async def reconsider(session: AsyncSession, *node_ids: str) -> None:
    """The desired assignments of these nodes have changed: a new revision for each, and a nudge to whoever talks to them."""
    await node_rows.raise_desired_revision(session, node_ids)
    nudge_after_commit(session, *(bus.node(node_id) for node_id in node_ids))


async def move_node(session: AsyncSession, node: NodeRow, to: NodeState, actor: Actor, why: str, now: datetime, **values: Any) -> None:
    """`values`: other columns that change along with the state."""
    check_transition(NODE_TRANSITIONS, node.state, to)
    before = node.state
    await _compare_and_set(session, node, state=to, state_since=now, **values)
    data = {"from": before.value, "to": to.value}
    await node_event(session, node, "node.state", actor, why, f"{node.name}: {before.value} -> {to.value}", now, data)
    nudge_after_commit(session, bus.SCHEDULER, bus.node(node.id))


async def intend_node(session: AsyncSession, node: NodeRow, to: NodeState, actor: Actor, why: str, now: datetime) -> None:
    """What a node that is out of reach will be once it is back. One that is to be drained is gone when it is lost."""
    await _compare_and_set(session, node, state_before_unreachable=to)
    await node_event(session, node, "node.intent", actor, why, f"{node.name} will be {to.value} once it is back", now)


async def dismiss(session: AsyncSession, node: NodeRow, now: datetime) -> None:
    """Drained: its agent is told to leave."""
    await _compare_and_set(session, node, leaving=True)
    await reconsider(session, node.id)
    await node_event(session, node, "node.leaving", SYSTEM, "no job is left on it", f"{node.name} is told to leave", now)


async def lose_ranks(session: AsyncSession, node: NodeRow, now: datetime) -> int:
    """Give up every rank on this node, so that its jobs recover elsewhere; the new generation fences off what may still run."""
    lost = [
        rank
        for rank in await job_rows.open_ranks_of_node(session, node.id)
        if rank.state not in (RankState.EXITED, RankState.LOST, RankState.MOVED)
    ]
    for rank in lost:
        rank.state, rank.updated_at = RankState.LOST, now
    await session.flush()
    nudge_after_commit(session, bus.SCHEDULER)
    return len(lost)


async def node_event(
    session: AsyncSession,
    node: NodeRow,
    type: str,
    actor: Actor,
    cause: str,
    message: str,
    now: datetime,
    data: dict[str, Any] | None = None,
) -> None:
    await events.record(
        session,
        type=type,
        actor=actor,
        cause=cause,
        message=message,
        node_id=node.id,
        data={"state": node.state.value, **(data or {})},
        time=now,
    )


# --- checkpoints


async def record_checkpoint(session: AsyncSession, checkpoint: CheckpointRow, actor: Actor, cause: str, now: datetime) -> None:
    """A new checkpoint: committed, or debris that is only recorded to be deleted."""
    session.add(checkpoint)
    await session.flush()
    if checkpoint.state is CheckpointState.DELETING:
        await reconsider(session, checkpoint.node_id)
    await _checkpoint_event(session, checkpoint, f"checkpoint.{checkpoint.state.value}", actor, cause, now)


async def move_checkpoint(
    session: AsyncSession, checkpoint: CheckpointRow, to: CheckpointState, actor: Actor, why: str, now: datetime, **values: Any
) -> None:
    check_transition(CHECKPOINT_TRANSITIONS, checkpoint.state, to)
    await _compare_and_set(session, checkpoint, state=to, **values)
    if to in (CheckpointState.DELETING, CheckpointState.DELETED):
        await reconsider(session, checkpoint.node_id)
    await _checkpoint_event(session, checkpoint, f"checkpoint.{to.value}", actor, why, now)


async def pin_checkpoint(session: AsyncSession, checkpoint: CheckpointRow, pinned: bool, actor: Actor, now: datetime) -> None:
    await _compare_and_set(session, checkpoint, pinned=pinned)
    await _checkpoint_event(
        session, checkpoint, "checkpoint.pinned" if pinned else "checkpoint.unpinned", actor, f"{actor.name} asked for it", now
    )


async def hand_over_deletion(session: AsyncSession, checkpoint: CheckpointRow, node_id: str) -> None:
    """The node that wrote it is gone: another one that sees the same folder deletes it."""
    await _compare_and_set(session, checkpoint, node_id=node_id)
    await reconsider(session, node_id)


async def _checkpoint_event(session: AsyncSession, checkpoint: CheckpointRow, type: str, actor: Actor, cause: str, now: datetime) -> None:
    await events.record(
        session,
        type=type,
        actor=actor,
        cause=cause,
        message=f"checkpoint of step {checkpoint.step}: {type.removeprefix('checkpoint.')}",
        job_id=checkpoint.job_id,
        node_id=checkpoint.node_id,
        generation=checkpoint.generation,
        data={"checkpoint_id": checkpoint.id, "step": checkpoint.step, "state": checkpoint.state.value},
        time=now,
    )


# --- the one way to change a row


async def _compare_and_set(session: AsyncSession, row: JobRow | NodeRow | CheckpointRow, **values: Any) -> None:
    model: Any = type(row)
    state: StrEnum = row.state
    values["version"] = row.version + 1
    mine = (model.id == row.id, model.state == state, model.version == row.version)
    statement = update(model).where(*mine).values(**values).execution_options(synchronize_session=False)
    if cast("CursorResult[Any]", await session.execute(statement)).rowcount != 1:
        raise StaleStateError(f"{model.__tablename__} {row.id} is no longer {state} at version {row.version}")
    for name, value in values.items():
        set_committed_value(row, name, value)
