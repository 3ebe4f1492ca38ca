"""Applies agents' reports about their ranks to the rows. Reports may come twice, late, or not at all."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import nudge_after_commit
from paceline.api.core.identity import node_actor
from paceline.api.services.lifecycle import checkpoint_lifecycle, events, node_lifecycle, rank_lifecycle
from paceline.api.services.scheduling import stacks
from paceline.api.services.scheduling.assignments import action_of
from paceline.api.services.specs.job_views import report_of, stall_of
from paceline.api.services.specs.node_facets import card_of
from paceline.cluster.policy.failures import is_victim
from paceline.cluster.protocol import Observed, ObservedRank, RankKey
from paceline.cluster.states import REPORTED_RANK_STATES, CheckpointState, RankState
from paceline.db.models.jobs import GenerationRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import checkpoints as checkpoint_rows
from paceline.db.repositories import jobs as job_rows
from paceline.training.link import FailureReport


class NodeReport(NamedTuple):
    """An agent's report. The row of its node is locked by the transaction that applies it. `only`: the ranks to apply it to, not one for its
    deleted checkpoints alone; None: all of it."""

    node: NodeRow
    observed: Observed
    came_at: datetime
    only: Collection[RankKey] | None = None


async def apply_all(session: AsyncSession, reports: Sequence[NodeReport]) -> None:
    """Apply the reports of several nodes: as many queries as for one, and what changes is written in a few statements."""
    if not reports:
        return
    with session.no_autoflush:
        open_ranks = await job_rows.open_ranks_to_report(session, [each.node.id for each in reports])
        changed = [each.node.id for each in reports if await _apply_observed(session, each, open_ranks.get(each.node.id, ()))]
        await node_lifecycle.bump_desired_revision(session, *changed)
        await session.flush()


async def _apply_observed(session: AsyncSession, node_report: NodeReport, open_ranks: Sequence[tuple[RankRow, GenerationRow]]) -> bool:
    """Apply a report. Returns whether the node's assignments have changed by it."""
    is_changed, (node, observed, now, only) = False, node_report
    reported = {(each.job_id, each.generation, rank.rank): rank for each in observed.assignments for rank in each.ranks}
    current = observed.revision == node.desired_revision
    for rank, generation in open_ranks:
        if only is not None and (rank.job_id, rank.generation, rank.rank) not in only:
            continue
        report = reported.get((rank.job_id, rank.generation, rank.rank))
        if report is not None:
            await _apply_report(session, node, rank, generation, report, now)
        elif current and await _is_gone(session, rank):
            await _forget(session, node, rank, now)
        is_changed = is_changed or (rank.state is RankState.EXITED and rank.drained)
    if not only:
        await _confirm_deletions(session, node, observed.deleted_checkpoints, now)
    return is_changed


async def _apply_report(
    session: AsyncSession, node: NodeRow, rank: RankRow, generation: GenerationRow, report: ObservedRank, now: datetime
) -> None:
    """Apply the report of one rank."""
    _note_progress(rank, report, now)
    await _note_looks(session, rank, report, now)
    if rank.state is RankState.MOVED:  # only what it left behind is still of interest
        rank.drained = rank.drained or report.drained
        return
    on_its_way = report.state in (RankState.ASSIGNED, RankState.STARTING)  # it has taken no step here
    if generation.first_step_at is None and rank.step > generation.start_step and not on_its_way:
        generation.first_step_at = now
    exited = report.state is RankState.EXITED and rank.state is not RankState.EXITED
    stopping = rank.parked and rank.state is RankState.STOPPING
    given_up = stopping and rank.outcome == "failed"
    if not _is_news(rank, report):
        return
    if rank.state is RankState.ASSIGNED and not exited:  # of one that has exited, its agent may offer other cards by now
        rank.card = card_of(node, rank.slot)
    rank_lifecycle.move(rank, report.state, now)
    rank.pid = report.pid or rank.pid
    rank.exit_code, rank.signal = report.exit_code, report.signal
    if not given_up:
        rank.outcome = "released" if exited and stopping else report.outcome
        rank.failure = msgspec.to_builtins(report.failure) if report.failure else None
    rank.stall = msgspec.to_builtins(report.stall) if report.stall else None
    rank.suspended = report.suspended
    if report.state is RankState.EXITED and report.drained:
        rank.drained = True
    nudge_after_commit(session, bus.SCHEDULER)
    if exited:
        await _exit_event(session, node, rank, now)


def _is_news(rank: RankRow, report: ObservedRank) -> bool:
    if report.state is not rank.state:
        return rank_lifecycle.is_advance(rank, report.state)
    if rank.state is RankState.EXITED:
        return report.drained and not rank.drained
    breaks = report.failure is not None and rank.failure is None
    hangs = (report.suspended, report.stall) != (rank.suspended, stall_of(rank))
    return rank.state in REPORTED_RANK_STATES and (breaks or hangs or report.pid not in (None, rank.pid))


def _note_progress(rank: RankRow, report: ObservedRank, now: datetime) -> None:
    if report.state not in (RankState.ASSIGNED, RankState.STARTING):  # one on its way may have to go back from where it was
        rank.step = max(rank.step, report.step)
    rank.total_steps = report.total_steps or rank.total_steps
    if report.progress_age is not None:
        seen = now - timedelta(seconds=report.progress_age)
        rank.progress_at = max(rank.progress_at or seen, seen)


async def _note_looks(session: AsyncSession, rank: RankRow, report: ObservedRank, now: datetime) -> None:
    """Store the agent's observations of the rank from outside."""
    quiet_since = None if report.quiet_since is None else datetime.fromtimestamp(report.quiet_since, UTC)
    if rank.quiet_since != quiet_since:
        rank.quiet_since = quiet_since
        nudge_after_commit(session, bus.SCHEDULER)
    if report.stacks is not None:
        await stacks.note(session, rank, report.stacks, now)


async def _is_gone(session: AsyncSession, rank: RankRow) -> bool:
    """Whether a rank is gone, since the agent, in answer to the newest assignments, does not mention it: it never started, or its machine
    forgot it.

    A rank that is to run and was never reported has only not started yet."""
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
    rank_lifecycle.move(rank, RankState.EXITED, now)
    rank.drained = True
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
    told = "stopped" if outcome == "paused" else outcome or "ended"  # for a pause, a resize or the end of its node
    message = f"rank {rank.rank} on {node.name}: {told} ({how})"
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
    """Whether a rank failed by itself. A culprit may report later than its victims, whose reports made the generation stop."""
    report = report_of(rank)
    return report is not None and not is_victim(report)


async def _confirm_deletions(session: AsyncSession, node: NodeRow, checkpoint_ids: tuple[str, ...], now: datetime) -> None:
    for checkpoint_id in checkpoint_ids:
        checkpoint = await checkpoint_rows.get_locked(session, checkpoint_id)
        if checkpoint is not None and checkpoint.state is CheckpointState.DELETING and checkpoint.node_id == node.id:
            await checkpoint_lifecycle.move(session, checkpoint, CheckpointState.DELETED, node_actor(node), "its folder is gone", now)
