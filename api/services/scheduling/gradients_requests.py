"""Gradients of running jobs: the requests for their next step, the ranks that have still to answer, and the messages to their nodes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError
from paceline.api.schemas.common import Actor
from paceline.api.schemas.gradients import GradientsOrder, RequestedGradients
from paceline.api.services.lifecycle import events, node_lifecycle
from paceline.cluster.policy.rank_numbers import listed
from paceline.cluster.protocol import WantedGradients
from paceline.cluster.states import JobState
from paceline.db.models.artifacts import GradientsRequestRow
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import gradients_requests as rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories.gradients_requests import GradientsAnswer


async def ask(session: AsyncSession, job: JobRow, order: GradientsOrder, actor: Actor, now: datetime) -> RequestedGradients:
    """Request the gradients of the next step. One request at a time, so that all ranks mean the same one."""
    if job.spec.is_script:
        raise ProblemError(
            "cannot_record_gradients",
            f"job {job.name} runs a script, whose steps Paceline does not know; open paceline.intercept_gradients in its loop",
        )
    if job.state is not JobState.RUNNING:
        raise ProblemError("job_not_running", f"job {job.name} is {job.state.value}; gradients are recorded of a running job")
    generation = await job_rows.generation(session, job.id, job.generation)
    assert generation is not None, f"running job {job.id} without its generation"
    before = await rows.newest(session, job.id)
    if before is not None and await _is_open(session, job, before):
        left = listed(_unanswered(before, await rows.answers(session, before)))
        raise ProblemError(
            "already_recording_gradients", f"{before.created_by} has asked for gradients, and rank {left} has not answered yet; wait for it"
        )
    row = GradientsRequestRow(
        job_id=job.id,
        generation=job.generation,
        world_size=generation.world_size,
        names=list(order.names),
        snapshots=order.snapshots,
        created_by=actor.name,
        created_at=now,
    )
    session.add(row)
    await session.flush()
    await _tell(session, row, actor)
    return _describe(row, [], is_open=True)


async def _tell(session: AsyncSession, row: GradientsRequestRow, actor: Actor) -> None:
    """Record the event, and have the nodes of the job told."""
    await events.record(
        session,
        type="job.gradients_requested",
        actor=actor,
        cause=f"{actor.name} asked for them",
        message=f"the gradients of the next step were asked for{', with snapshots' if row.snapshots else ''}",
        job_id=row.job_id,
        generation=row.generation,
        data={"request_id": row.id, "names": row.names, "snapshots": row.snapshots},
        time=row.created_at,
    )
    await node_lifecycle.bump_desired_revision(session, *await job_rows.nodes_with_open_ranks(session, [row.job_id]))


async def newest(session: AsyncSession, job: JobRow) -> RequestedGradients | None:
    row = await rows.newest(session, job.id)
    if row is None:
        return None
    return _describe(row, await rows.answers(session, row), is_open=await _goes_on(session, job, row))


async def wanted(session: AsyncSession, job: JobRow, ranks: Sequence[int]) -> WantedGradients | None:
    """The open request to these ranks of the job's newest generation, repeated until they have answered."""
    row = await rows.newest(session, job.id)
    if row is None or not await _goes_on(session, job, row):
        return None
    left = tuple(rank for rank in _unanswered(row, await rows.answers(session, row)) if rank in ranks)
    return WantedGradients(id=row.id, names=tuple(row.names), snapshots=row.snapshots, ranks=left) if left else None


async def _is_open(session: AsyncSession, job: JobRow, row: GradientsRequestRow) -> bool:
    return bool(_unanswered(row, await rows.answers(session, row))) and await _goes_on(session, job, row)


async def _goes_on(session: AsyncSession, job: JobRow, row: GradientsRequestRow) -> bool:
    """Whether the generation that was asked still runs."""
    generation = await job_rows.generation(session, job.id, row.generation)
    return generation is not None and generation.generation == job.generation and generation.ended_at is None


def _unanswered(row: GradientsRequestRow, answers: Sequence[GradientsAnswer]) -> list[int]:
    """The ranks that have still to leave the last of their files, or the reason why there is none."""
    last = "snapshot" if row.snapshots else "gradients"
    answered = {each.rank for each in answers if each.error is not None or each.kind == last}
    return [rank for rank in range(row.world_size) if rank not in answered]


def _describe(row: GradientsRequestRow, answers: Sequence[GradientsAnswer], *, is_open: bool) -> RequestedGradients:
    left = _unanswered(row, answers)
    return RequestedGradients(
        id=row.id,
        job_id=row.job_id,
        generation=row.generation,
        names=row.names,
        snapshots=row.snapshots,
        step=max((each.step for each in answers), default=None),
        ranks=row.world_size,
        answered=row.world_size - len(left),
        state="open" if left and is_open else "missed" if left else "done",
        created_by=row.created_by,
        created_at=row.created_at,
    )
