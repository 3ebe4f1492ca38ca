"""The queries for checkpoints, by job and by folder."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import func, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.cluster.states import TERMINAL_JOB_STATES, CheckpointState
from paceline.db.models.checkpoints import BEING_DELETED, KEPT, CheckpointRow
from paceline.db.models.jobs import JobRow

#: How many, the sum of their versions, the newest id, and the jobs at work that were started from one of them.
Mark = tuple[int, int, str, tuple[str, ...]]
#: On disk, as far as we know.
PRESENT = (CheckpointState.COMMITTED, CheckpointState.SUPERSEDED, CheckpointState.DAMAGED, CheckpointState.DELETING)


async def get(session: AsyncSession, checkpoint_id: str) -> CheckpointRow | None:
    return await session.get(CheckpointRow, checkpoint_id)


async def get_locked(session: AsyncSession, checkpoint_id: str) -> CheckpointRow | None:
    return await session.get(CheckpointRow, checkpoint_id, with_for_update={"key_share": True}, populate_existing=True)


async def by_directory(session: AsyncSession, directory: str) -> CheckpointRow | None:
    """The checkpoint of a directory, whose name has job, step and generation, so that it belongs to one checkpoint for ever."""
    query = select(CheckpointRow).where(CheckpointRow.directory == directory).order_by(CheckpointRow.id.desc()).limit(1)
    return (await session.scalars(query)).one_or_none()


async def present_of_job(session: AsyncSession, job_id: str) -> Sequence[CheckpointRow]:
    """The present checkpoints of a job, the newest first."""
    return await present_of_jobs(session, [job_id])


async def present_of_jobs(session: AsyncSession, job_ids: Collection[str]) -> Sequence[CheckpointRow]:
    """The present checkpoints of these jobs, the newest first."""
    if not job_ids:
        return []
    query = select(CheckpointRow).where(CheckpointRow.job_id.in_(job_ids), CheckpointRow.state.in_(PRESENT))
    return (await session.scalars(query.order_by(CheckpointRow.step.desc(), CheckpointRow.generation.desc()))).all()


async def page_of_job(session: AsyncSession, job_id: str, after: tuple[int, str] | None, limit: int) -> Sequence[CheckpointRow]:
    query = select(CheckpointRow).where(CheckpointRow.job_id == job_id, CheckpointRow.state.in_(PRESENT))
    if after is not None:
        step, checkpoint_id = after
        query = query.where((CheckpointRow.step < step) | ((CheckpointRow.step == step) & (CheckpointRow.id < checkpoint_id)))
    return (await session.scalars(query.order_by(CheckpointRow.step.desc(), CheckpointRow.id.desc()).limit(limit))).all()


async def page(
    session: AsyncSession, text: str | None, states: Collection[CheckpointState], after: tuple[datetime, str] | None, limit: int
) -> Sequence[tuple[CheckpointRow, JobRow]]:
    """Checkpoints of all jobs with their jobs, the newest first; `text`: a part of the job's name, or its id."""
    query = select(CheckpointRow, JobRow).join(JobRow, JobRow.id == CheckpointRow.job_id).where(CheckpointRow.state.in_(states))
    if text:
        query = query.where(or_(JobRow.name.icontains(text, autoescape=True), JobRow.id == text))
    if after is not None:
        query = query.where(tuple_(CheckpointRow.created_at, CheckpointRow.id) < tuple_(*after))
    query = query.order_by(CheckpointRow.created_at.desc(), CheckpointRow.id.desc()).limit(limit)
    return [(checkpoint, job) for checkpoint, job in await session.execute(query)]


async def being_deleted_on(session: AsyncSession, node_ids: Collection[str]) -> Sequence[CheckpointRow]:
    query = select(CheckpointRow).where(CheckpointRow.node_id.in_(node_ids), CheckpointRow.state == CheckpointState.DELETING)
    return (await session.scalars(query.order_by(CheckpointRow.id))).all()


async def being_deleted(session: AsyncSession) -> Sequence[CheckpointRow]:
    """The checkpoints that are being deleted, the oldest first."""
    found = await session.scalars(select(CheckpointRow).where(BEING_DELETED))
    return sorted(found, key=lambda row: row.id)  # in the database it would be by the key of all checkpoints, not by the index of these


async def users_of(session: AsyncSession, checkpoint_ids: Collection[str]) -> dict[str, list[tuple[str, str]]]:
    """Id and name of the jobs that were started from each of these checkpoints and have not ended."""
    query = select(JobRow.restored_from, JobRow.id, JobRow.name).where(
        JobRow.restored_from.in_(checkpoint_ids), JobRow.state.not_in(TERMINAL_JOB_STATES)
    )
    users: dict[str, list[tuple[str, str]]] = {}
    for checkpoint_id, job_id, name in await session.execute(query.order_by(JobRow.id)):
        users.setdefault(str(checkpoint_id), []).append((job_id, name))
    return users


async def marks(session: AsyncSession) -> dict[str, Mark]:
    """By job, a mark of its committed and damaged checkpoints: where the mark is the same, retention decides the same."""
    query = select(CheckpointRow.job_id, func.count(), func.sum(CheckpointRow.version), func.max(CheckpointRow.id))
    found = {
        job: (count, int(versions), newest)
        for job, count, versions, newest in await session.execute(query.where(KEPT).group_by(CheckpointRow.job_id))
    }
    users = (
        select(CheckpointRow.job_id, JobRow.id)
        .join(JobRow, JobRow.restored_from == CheckpointRow.id)
        .where(JobRow.restored_from.is_not(None))
    )
    by_job: dict[str, list[str]] = {}
    for job, user in sorted(tuple(row) for row in await session.execute(users.where(JobRow.state.not_in(TERMINAL_JOB_STATES)))):
        by_job.setdefault(job, []).append(user)
    return {job: (*mark, tuple(by_job.get(job, ()))) for job, mark in found.items()}


async def saved_last(session: AsyncSession, job_id: str) -> dict[int, datetime]:
    """The time when each generation's newest checkpoint was saved, deleted or not."""
    query = select(CheckpointRow.generation, func.max(CheckpointRow.created_at)).where(CheckpointRow.job_id == job_id)
    return {row[0]: row[1] for row in await session.execute(query.group_by(CheckpointRow.generation))}


async def parameter_hashes(session: AsyncSession, job_id: str) -> list[tuple[int, int, str]]:
    """(step, generation, hash) of the parameters of every checkpoint, those of the oldest generation first; of deleted ones too."""
    query = select(CheckpointRow.step, CheckpointRow.generation, CheckpointRow.parameters_sha256).where(
        CheckpointRow.job_id == job_id, CheckpointRow.parameters_sha256.is_not(None)
    )
    found = await session.execute(query.order_by(CheckpointRow.generation))
    return [(step, generation, digest) for step, generation, digest in found if digest]
