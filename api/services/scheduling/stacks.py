"""The Python stacks of a job's ranks: requested, reported by its agents, and shown with the rank that differs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import Services, nudge_after_commit
from paceline.api.errors import ProblemError
from paceline.api.schemas.stacks import JobStacks, RankStacks, StackFrame, StackProcess, StackThread
from paceline.api.services.jobs import jobs
from paceline.api.services.lifecycle import node_lifecycle
from paceline.cluster import stacks
from paceline.cluster.protocol import StacksRequest
from paceline.cluster.states import JobState, RankState
from paceline.db.base import new_id
from paceline.db.models.jobs import JobRow, RankRow, RankStacksRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import stacks as rows

#: A request that is so young is shared by the next ones: each one stops the ranks for a moment.
JOIN_SECONDS = 2.0
#: How many ranks of a node answer in one report.
RANKS_AT_ONCE = 32
#: States in which a rank has a process that can be looked at.
ALIVE = frozenset({RankState.STARTING, RankState.PARKED, RankState.RUNNING})
LIVE_STATES = frozenset({JobState.STARTING, JobState.RUNNING, JobState.RECOVERING, JobState.RESIZING, JobState.STOPPING})
POLL_SECONDS = 0.5


async def ask(session: AsyncSession, job: JobRow, now: datetime) -> None:
    """Have every living rank of the newest generation looked at, unless that was asked for a moment ago. The job's row is locked."""
    known = await rows.of_generation(session, job.id, job.generation)
    living = [rank for rank in await _members(session, job) if rank.state in ALIVE]
    missing = [rank for rank in living if rank.rank not in known or known[rank.rank].asked_at < now - timedelta(seconds=JOIN_SECONDS)]
    if not missing:
        return
    await rows.forget_others(session, job.id, job.generation)
    request = new_id()
    for rank in missing:
        row = known.get(rank.rank) or RankStacksRow(job_id=job.id, generation=job.generation, rank=rank.rank)
        row.node_id, row.request, row.asked_at, row.answered_at, row.answer = rank.node_id, request, now, None, None
        session.add(row)
    await session.flush()
    await node_lifecycle.bump_desired_revision(session, *sorted({rank.node_id for rank in missing}))


async def _members(session: AsyncSession, job: JobRow) -> Sequence[RankRow]:
    return (await job_rows.ranks(session, [(job.id, job.generation)])).get((job.id, job.generation), [])


def wanted(asked: Sequence[tuple[str, int]], mine: Collection[int]) -> StacksRequest | None:
    """The request to a node, for each (request, rank) that is yet to answer."""
    open_ones = [(request, rank) for request, rank in asked if rank in mine]
    if not open_ones:
        return None
    newest = max(request for request, _ in open_ones)
    return StacksRequest(id=newest, ranks=tuple(rank for request, rank in open_ones if request == newest)[:RANKS_AT_ONCE])


async def note(session: AsyncSession, rank: RankRow, answer: stacks.StackSample, now: datetime) -> None:
    """Store the stacks of a rank. Stacks that are not, or no longer, requested are left out."""
    row = await rows.of_rank(session, rank.job_id, rank.generation, rank.rank)
    if row is None or row.request != answer.id or row.answered_at is not None:
        return
    row.answered_at, row.answer = now, msgspec.to_builtins(answer)
    await node_lifecycle.bump_desired_revision(session, rank.node_id)
    nudge_after_commit(session, bus.stacks(rank.job_id), bus.SCHEDULER)


def answer_of(row: RankStacksRow | None, since: datetime | None = None) -> stacks.StackSample | None:
    """The stacks of a rank, `since` then; None where there is no answer, or an unreadable one."""
    if row is None or row.answered_at is None or row.answer is None or (since is not None and row.answered_at < since):
        return None
    try:
        return msgspec.convert(row.answer, stacks.StackSample)
    except msgspec.ValidationError:
        return None


def positions_of(ranks: Sequence[RankRow], answers: Mapping[int, stacks.StackSample | None]) -> dict[int, stacks.StackPosition]:
    """The position of each rank."""
    return {rank.rank: _position(rank, answers.get(rank.rank)) for rank in ranks}


def _position(rank: RankRow, answer: stacks.StackSample | None) -> stacks.StackPosition:
    if rank.state in (RankState.EXITED, RankState.LOST):
        return stacks.StackPosition("ended")
    return stacks.StackPosition("stopped") if rank.suspended else stacks.position_of(answer)


async def collect(services: Services, job_id: str, only: Collection[int] | None, wait_seconds: float) -> JobStacks:
    """Request stacks, and wait for the answers; the missing ones are reported as missing. `only`: these ranks; none: all. Raises
    job_not_running and invalid_parameter."""
    with services.bus.subscribe(bus.stacks(job_id)) as nudges:
        async with services.write(request=True) as session:
            job = await jobs.find(session, job_id, lock=True)
            _refuse_idle(job)
            _refuse_unknown(job, only, await _members(session, job))
            await ask(session, job, services.now())
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        while True:
            async with services.control.read() as session:
                found, complete = await _read(session, job_id, only)
            left = deadline - loop.time()
            if complete or left <= 0:
                return found
            await nudges.wait(min(left, POLL_SECONDS))


def _refuse_idle(job: JobRow) -> None:
    if job.state not in LIVE_STATES:
        raise ProblemError("job_not_running", f"job {job.name} is {job.state.value}; only a running job has stacks")


def _refuse_unknown(job: JobRow, only: Collection[int] | None, ranks: Sequence[RankRow]) -> None:
    numbers = {rank.rank for rank in ranks if not rank.parked}
    if beyond := sorted(set(only or ()) - numbers):
        raise ProblemError("invalid_parameter", f"rank={beyond[0]}: job {job.name} runs with the ranks 0 to {max(numbers, default=0)}")


async def _read(session: AsyncSession, job_id: str, only: Collection[int] | None) -> tuple[JobStacks, bool]:
    """The newest answers, and whether they are complete."""
    job = await jobs.find(session, job_id)
    members = [rank for rank in await _members(session, job) if not rank.parked]
    known = await rows.of_generation(session, job.id, job.generation)
    answers = {rank.rank: answer_of(known.get(rank.rank)) for rank in members}
    positions = positions_of(members, answers)
    difference = stacks.compare(positions)
    same = stacks.equals(answers)
    names = await node_rows.named(session, {rank.node_id for rank in members})
    described = [
        _describe(
            rank,
            names.get(rank.node_id, rank.node_id),
            known.get(rank.rank),
            answers[rank.rank],
            positions[rank.rank],
            difference,
            same[rank.rank],
        )
        for rank in members
        if only is None or rank.rank in only
    ]
    complete = all(answers[rank.rank] is not None for rank in members if rank.state in ALIVE)
    return JobStacks(
        job_id=job.id, generation=job.generation, summary=difference.what, differs=list(difference.ranks), ranks=described
    ), complete


def _describe(
    rank: RankRow,
    node_name: str,
    row: RankStacksRow | None,
    answer: stacks.StackSample | None,
    position: stacks.StackPosition,
    difference: stacks.Difference,
    same_as: int,
) -> RankStacks:
    return RankStacks(
        rank=rank.rank,
        node_name=node_name,
        state=rank.state,
        differs=rank.rank in difference.ranks,
        same_as=same_as,
        summary=position.described(several=False),
        taken_at=row.answered_at if row else None,
        cores=answer.cores if answer else None,
        gpu_percent=answer.gpu_percent if answer else None,
        error=position.where if position.standing == "unknown" else "",
        processes=[_process(process) for process in answer.processes] if answer else [],
    )


def _process(process: stacks.ProcessStack) -> StackProcess:
    threads = [StackThread(name=thread.name, frames=[_frame(frame) for frame in thread.frames]) for thread in process.threads]
    return StackProcess(pid=process.pid, command=process.command, threads=threads, error=process.error)


def _frame(frame: stacks.PythonFrame) -> StackFrame:
    return StackFrame(function=frame.function, file=frame.file, line=frame.line, own=frame.own)
