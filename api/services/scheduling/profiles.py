"""Profiler traces of running jobs: the requests, the ranks that have still to answer, and the messages to their nodes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError
from paceline.api.schemas.artifacts import ProfileOrder, ProfileRequest
from paceline.api.schemas.common import Actor
from paceline.api.services.lifecycle import events, node_lifecycle
from paceline.cluster.policy.rank_numbers import listed
from paceline.cluster.protocol import Profile
from paceline.cluster.states import JobState
from paceline.db.models.artifacts import ProfileRequestRow
from paceline.db.models.jobs import GenerationRow, JobRow
from paceline.db.repositories import artifacts as rows
from paceline.db.repositories import jobs as job_rows
from paceline.monitoring.words import plural
from paceline.training.schema.profile_window import beyond_world


async def ask(session: AsyncSession, job: JobRow, order: ProfileOrder, actor: Actor, now: datetime) -> ProfileRequest:
    """Request traces. One request at a time: a second would find the profiler taken."""
    if job.spec.is_script:
        raise ProblemError(
            "cannot_profile", f"job {job.name} runs a script, whose steps Paceline does not know; use an entrypoint or a model"
        )
    if job.state is not JobState.RUNNING:
        raise ProblemError("job_not_running", f"job {job.name} is {job.state.value}; a trace is taken of a running job")
    generation = await job_rows.generation(session, job.id, job.generation)
    assert generation is not None, f"running job {job.id} without its generation"
    beyond = beyond_world(order.ranks, generation.world_size)
    if beyond:
        raise ProblemError("cannot_profile", f"ranks={beyond}: job {job.name} runs with the ranks 0 to {generation.world_size - 1}")
    before = await newest(session, job)
    if before is not None and before.state == "open":
        left = listed(rank for rank in before.ranks if rank not in before.answered)
        raise ProblemError(
            "already_profiling", f"{before.created_by} has asked for a trace, and rank {left} has not answered yet; wait for it"
        )
    return await _record(session, job, order, actor, now)


async def _record(session: AsyncSession, job: JobRow, order: ProfileOrder, actor: Actor, now: datetime) -> ProfileRequest:
    ranks = sorted(set(order.ranks))
    row = ProfileRequestRow(job_id=job.id, generation=job.generation, steps=order.steps, ranks=ranks, created_by=actor.name, created_at=now)
    session.add(row)
    await session.flush()
    await events.record(
        session,
        type="job.profile_requested",
        actor=actor,
        cause=f"{actor.name} asked for it",
        message=f"a trace of {plural(order.steps, 'step')} of rank {listed(ranks)} was asked for",
        job_id=job.id,
        generation=job.generation,
        data={"request_id": row.id, "steps": order.steps, "ranks": ranks},
        time=now,
    )
    await node_lifecycle.bump_desired_revision(session, *await job_rows.nodes_with_open_ranks(session, [job.id]))
    return describe(row, set(), is_open=True)


async def newest(session: AsyncSession, job: JobRow) -> ProfileRequest | None:
    row = await rows.newest_request(session, job.id)
    if row is None:
        return None
    generation = await job_rows.generation(session, job.id, row.generation)
    return describe(row, await rows.answered(session, row.id), is_open=_goes_on(job, generation))


def describe(row: ProfileRequestRow, answered: set[int], *, is_open: bool) -> ProfileRequest:
    done = answered.issuperset(row.ranks)
    return ProfileRequest(
        id=row.id,
        job_id=row.job_id,
        generation=row.generation,
        steps=row.steps,
        ranks=row.ranks,
        answered=sorted(answered),
        state="done" if done else "open" if is_open else "missed",
        created_by=row.created_by,
        created_at=row.created_at,
    )


def _goes_on(job: JobRow, generation: GenerationRow | None) -> bool:
    return generation is not None and generation.generation == job.generation and generation.ended_at is None


async def wanted(session: AsyncSession, job: JobRow, ranks: Sequence[int]) -> Profile | None:
    """The open requests to these ranks of the job's newest generation, repeated until they have answered."""
    request = await newest(session, job)
    if request is None or request.state != "open":
        return None
    left = tuple(rank for rank in request.ranks if rank in ranks and rank not in request.answered)
    return Profile(id=request.id, steps=request.steps, ranks=left) if left else None
