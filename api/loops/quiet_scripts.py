"""Handles scripts that hang: asks for the stacks of jobs that have fallen quiet, reports jobs that seem to hang, and withdraws reports."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import Services, nudge_after_commit
from paceline.api.core.identity import SYSTEM
from paceline.api.services.lifecycle import job_lifecycle
from paceline.api.services.lifecycle.isolation import PhaseTurns
from paceline.api.services.scheduling import stacks
from paceline.api.services.scheduling.job_snapshots import JobSnapshot, load_locked, load_quiet
from paceline.api.services.specs.job_views import suspicion_of
from paceline.cluster.policy import quiet
from paceline.cluster.policy.quiet import PATIENCE_SECONDS, KeepReading, ReportHang, RequestStacks, StackReading, Suspicion, WithdrawReport
from paceline.cluster.stacks import all_at_work, compare, has_idle_card, in_words, main_frames
from paceline.cluster.states import JobState, RankState
from paceline.db.models.jobs import RankRow
from paceline.db.repositories import stacks as stack_rows


async def step_once(services: Services, now: datetime) -> None:
    """Advance each job with something to do, in one transaction each."""
    looks, turns = PhaseTurns(services, "look whether it hangs", now), PhaseTurns(services, "find out whether it hangs", now)
    async with services.control.read() as session:
        known = await load_quiet(session)
        due = [each for each in known if await looks.take(each.subject, partial(_next, session, each, now)) is not None]
    for each in due:
        await turns.take(each.subject, partial(_advance_job, services, each.job.id, now))
    for phase in (looks, turns):
        services.troubles.forget_all_but(phase.task, {each.job.id for each in known})


async def _advance_job(services: Services, job_id: str, now: datetime) -> None:
    """Decide again with everything locked: a rank may have had output since."""
    async with services.write() as session:
        known = await load_locked(session, job_id)
        action = await _next(session, known, now) if known is not None else None
        if known is not None and action is not None:
            await _carry_out(session, known, action, now)


async def _next(session: AsyncSession, known: JobSnapshot, now: datetime) -> quiet.QuietAction | None:
    """The next action. The last report of an agent that is away decides nothing."""
    generation = known.generation
    if known.job.state is not JobState.RUNNING or generation is None or any(rank.node_id in known.reach.silent for rank in known.members):
        return None
    if not all(rank.state is RankState.RUNNING or _has_long_ended(known, rank, now) for rank in known.members):
        return None
    suspicion = suspicion_of(generation)
    look = await _stack_reading(session, known, suspicion) if suspicion is not None and suspicion.open else None
    ends = quiet.hang_seconds_of(known.job.spec.document) is not None
    return quiet.next_action(_quiet_since(known.members), suspicion, look, now.timestamp(), ends=ends)


def _has_long_ended(known: JobSnapshot, rank: RankRow, now: datetime) -> bool:
    """Whether a rank ended longer ago than the patience of its job, in which the others might have ended as well."""
    patience = quiet.patience_of(known.job.spec.document, PATIENCE_SECONDS)
    return rank.state is RankState.EXITED and (now - rank.updated_at).total_seconds() >= patience


def _quiet_since(ranks: Sequence[RankRow]) -> float | None:
    """The last sign of any rank; None while one has output. A rank that has ended is quiet since then."""
    signs = [rank.updated_at if rank.state is RankState.EXITED else rank.quiet_since for rank in ranks]
    if not signs or any(sign is None for sign in signs):
        return None
    return max(sign.timestamp() for sign in signs if sign is not None)


async def _stack_reading(session: AsyncSession, known: JobSnapshot, suspicion: Suspicion) -> StackReading:
    """Read the answers to the last request for stacks."""
    since = datetime.fromtimestamp(suspicion.asked_at - stacks.JOIN_SECONDS, UTC)
    found = await stack_rows.of_generation(session, known.job.id, known.job.generation)
    answers = {rank.rank: stacks.answer_of(found.get(rank.rank), since) for rank in known.members}
    positions = stacks.positions_of(known.members, answers)
    complete = all(answers[rank.rank] is not None for rank in known.members if rank.state is RankState.RUNNING)
    return StackReading(
        compare(positions),
        all_at_work(answers, positions),
        complete,
        positions,
        {rank: in_words(main_frames(answer)) for rank, answer in answers.items() if answer is not None},
        [rank for rank, answer in answers.items() if has_idle_card(answer)],
    )


async def _carry_out(session: AsyncSession, known: JobSnapshot, action: quiet.QuietAction, now: datetime) -> None:
    match action:
        case RequestStacks(suspicion=suspicion):
            await stacks.ask(session, known.job, now)
            await _keep(session, known, suspicion)
        case KeepReading(suspicion=suspicion):
            await _keep(session, known, suspicion)
        case ReportHang(suspicion=suspicion):
            await _record_hang(session, known, suspicion, now)
        case WithdrawReport(reported=reported):
            await _keep(session, known, None)
            if reported:
                why = "a rank has had output or a step again"
                await job_lifecycle.record_event(session, known.job, "job.hang_withdrawn", SYSTEM, why, f"it does not hang: {why}", now)


async def _keep(session: AsyncSession, known: JobSnapshot, suspicion: Suspicion | None) -> None:
    assert known.generation is not None, f"running job {known.job.id} without its generation"
    known.generation.hang = None if suspicion is None else msgspec.to_builtins(suspicion)
    await session.flush()


async def _record_hang(session: AsyncSession, known: JobSnapshot, suspicion: Suspicion, now: datetime) -> None:
    await _keep(session, known, suspicion)
    message = f"it seems to hang: {quiet.described(suspicion, now.timestamp())}"
    data = {"since": suspicion.since, "differs": list(suspicion.ranks), "ranks": suspicion.places, "ends": suspicion.ends}
    await job_lifecycle.record_event(session, known.job, "job.hang_suspected", SYSTEM, "quiet", message, now, data)
    nudge_after_commit(session, bus.SCHEDULER)
