"""What an agent reports about its ranks, brought into the rows. Reports may come twice, late, or not at all."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from api.deps import nudge_after_commit
from api.services import bus, checkpoint_lifecycle, events, node_lifecycle
from api.services.assignments import action_of
from api.services.identity import node_actor
from api.services.job_views import report_of, stall_of
from cluster.failures import is_victim
from cluster.protocol import Observed, ObservedRank
from cluster.states import CheckpointState, RankState
from db.models.jobs import GenerationRow, RankRow
from db.models.nodes import NodeRow
from db.repositories import checkpoints as checkpoint_rows
from db.repositories import jobs as job_rows
from training.link import FailureReport

#: A rank only moves forward through these; a restarted agent may at first know less than we do.
_ORDER = [RankState.ASSIGNED, RankState.STARTING, RankState.PARKED, RankState.RUNNING, RankState.STOPPING, RankState.EXITED]
RankKey = tuple[str, int, int]


async def apply(session: AsyncSession, node: NodeRow, observed: Observed, now: datetime) -> None:
    """Bring an agent's report into the rows of its ranks and checkpoints. The row of `node` is locked by this transaction."""
    reported = {(each.job_id, each.generation, rank.rank): rank for each in observed.assignments for rank in each.ranks}
    current = observed.revision == node.desired_revision
    for rank, beginning in await job_rows.open_ranks_to_report(session, node.id):
        report = reported.get((rank.job_id, rank.generation, rank.rank))
        if report is not None:
            await _apply_report(session, node, rank, beginning, report, now)
        elif current and await _is_gone(session, rank):
            await _forget(session, node, rank, now)
    await _confirm_deletions(session, node, observed.deleted_checkpoints, now)


async def _apply_report(
    session: AsyncSession, node: NodeRow, rank: RankRow, beginning: GenerationRow | None, report: ObservedRank, now: datetime
) -> None:
    """`beginning`: the rank's generation as long as no step of it is known."""
    _note_progress(rank, report, now)
    if rank.state is RankState.MOVED:  # only what it left behind is still of interest
        rank.drained = rank.drained or report.drained
        return
    on_its_way = report.state in (RankState.ASSIGNED, RankState.STARTING)  # it has taken no step here
    if beginning is not None and beginning.first_step_at is None and rank.step > beginning.start_step and not on_its_way:
        beginning.first_step_at = now
    exited = report.state is RankState.EXITED and rank.state is not RankState.EXITED
    let_go = rank.parked and rank.state is RankState.STOPPING
    if not _is_news(rank, report):
        return
    rank.state, rank.updated_at = report.state, now
    rank.pid = report.pid or rank.pid
    rank.exit_code, rank.signal = report.exit_code, report.signal
    rank.outcome = "released" if exited and let_go else report.outcome
    rank.failure = msgspec.to_builtins(report.failure) if report.failure else None
    rank.stall = msgspec.to_builtins(report.stall) if report.stall else None
    rank.suspended = report.suspended
    if report.state is RankState.EXITED and report.drained:
        rank.drained = True
        await node_lifecycle.reconsider(session, node.id)
    nudge_after_commit(session, bus.SCHEDULER)
    await session.flush()
    if exited:
        await _exit_event(session, node, rank, now)


def _is_news(rank: RankRow, report: ObservedRank) -> bool:
    if rank.state is RankState.LOST:  # given up: only its end is of interest, for its slot
        return report.state is RankState.EXITED
    if rank.state is RankState.EXITED:
        return report.state is RankState.EXITED and report.drained and not rank.drained
    forward = _ORDER.index(report.state) - _ORDER.index(rank.state) if report.state in _ORDER else -1
    breaks = report.failure is not None and rank.failure is None
    hangs = (report.suspended, report.stall) != (rank.suspended, stall_of(rank))
    return forward > 0 or (forward == 0 and (breaks or hangs or report.pid not in (None, rank.pid)))


def _note_progress(rank: RankRow, report: ObservedRank, now: datetime) -> None:
    if report.state not in (RankState.ASSIGNED, RankState.STARTING):  # one on its way may have to go back from where it was
        rank.step = max(rank.step, report.step)
    rank.total_steps = report.total_steps or rank.total_steps
    if report.progress_age is not None:
        seen = now - timedelta(seconds=report.progress_age)
        rank.progress_at = max(rank.progress_at or seen, seen)


async def _is_gone(session: AsyncSession, rank: RankRow) -> bool:
    """A rank that the agent, in answer to the newest assignments, does not mention: it never started, or its machine forgot it.

    A rank that is to run and was never seen is only not there yet.
    """
    if rank.state is not RankState.ASSIGNED:
        return True
    job = await job_rows.get(session, rank.job_id)
    generation: GenerationRow | None = await job_rows.generation(session, rank.job_id, rank.generation)
    return job is None or generation is None or action_of(job, generation, rank) != "run"


async def _forget(session: AsyncSession, node: NodeRow, rank: RankRow, now: datetime) -> None:
    if rank.state is RankState.MOVED:
        rank.drained = True
        return
    if rank.state in (RankState.STARTING, RankState.PARKED, RankState.RUNNING, RankState.STOPPING):
        message = f"the agent of node {node.name} no longer has this rank; how it ended is unknown"
        report = FailureReport(kind="exit", rank=rank.rank, message=message, step=rank.step, time=now.timestamp())
        rank.outcome, rank.failure = "failed", msgspec.to_builtins(report)
    rank.state, rank.drained, rank.updated_at = RankState.EXITED, True, now
    await node_lifecycle.reconsider(session, node.id)
    nudge_after_commit(session, bus.SCHEDULER)
    await _exit_event(session, node, rank, now)


async def _exit_event(session: AsyncSession, node: NodeRow, rank: RankRow, now: datetime) -> None:
    """A rank that was to stop and was stopped has not failed, whatever its exit code says."""
    generation = await job_rows.generation(session, rank.job_id, rank.generation)
    to_stop = generation is not None and generation.ended_at is not None
    stopped = to_stop and rank.outcome == "failed" and not _broke_by_itself(rank)
    outcome = "stopped" if stopped else rank.outcome
    how = rank.signal or (f"exit code {rank.exit_code}" if rank.exit_code is not None else "exit unknown")
    cause = "no place for it any more" if outcome == "released" else (rank.failure or {}).get("message") or how
    message = f"rank {rank.rank} on {node.name}: {outcome or 'ended'} ({how})"
    data: dict[str, Any] = {
        "rank": rank.rank,
        "outcome": outcome,
        "exit_code": rank.exit_code,
        "signal": rank.signal,
        "step": rank.step,
    }
    await events.record(
        session,
        type="rank.exited",
        actor=node_actor(node),
        cause=f"generation {rank.generation} was to stop" if stopped else cause,
        message=message,
        job_id=rank.job_id,
        node_id=node.id,
        generation=rank.generation,
        data=data,
        time=now,
    )


def _broke_by_itself(rank: RankRow) -> bool:
    """A culprit may be heard of later than its victims, whose reports made the generation stop."""
    report = report_of(rank)
    return report is not None and not is_victim(report)


async def _confirm_deletions(session: AsyncSession, node: NodeRow, checkpoint_ids: tuple[str, ...], now: datetime) -> None:
    for checkpoint_id in checkpoint_ids:
        checkpoint = await checkpoint_rows.get_locked(session, checkpoint_id)
        if checkpoint is not None and checkpoint.state is CheckpointState.DELETING and checkpoint.node_id == node.id:
            await checkpoint_lifecycle.move(session, checkpoint, CheckpointState.DELETED, node_actor(node), "its folder is gone", now)
