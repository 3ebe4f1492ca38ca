"""Queries for records that have been kept long enough in the control database: events, ranks of earlier generations, files of ranks; and
for requests to delete data."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, and_, delete, exists, func, not_, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from paceline.cluster.states import TERMINAL_JOB_STATES, CheckpointState, NodeState, RankState
from paceline.db.models.artifacts import ArtifactRow
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.events import IS_BY_PEOPLE, EventRow
from paceline.db.models.jobs import GenerationRow, JobRow, RankEventMarkRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.models.registry import ModelVersionRow
from paceline.db.models.storage import DataRemovalRow


async def ended_jobs(session: AsyncSession, job_ids: Collection[str]) -> set[str]:
    """The jobs that have ended, among these; an unknown job counts as ended."""
    query = select(JobRow.id).where(JobRow.id.in_(job_ids), JobRow.state.not_in(TERMINAL_JOB_STATES))
    return set(job_ids) - set(await session.scalars(query))


async def names_of(session: AsyncSession, job_ids: Collection[str]) -> dict[str, tuple[str, str]]:
    """(name, state) by job."""
    query = select(JobRow.id, JobRow.name, JobRow.state).where(JobRow.id.in_(job_ids))
    return {job_id: (name, state.value) for job_id, name, state in await session.execute(query)}


async def rank_count(session: AsyncSession, job_id: str) -> int:
    """The number below which all ranks of the job are numbered, in every generation."""
    return int(await session.scalar(select(func.max(GenerationRow.world_size)).where(GenerationRow.job_id == job_id)) or 0)


# --- events


async def drop_events(session: AsyncSession, after: int, up_to: int, limit: int) -> int | None:
    """Delete events with after < seq <= up_to, of jobs that have not ended those of checkpoints alone; at most `limit` events are looked at. Returns
    the `seq` that was reached; None: there are no more."""
    looked_at = select(EventRow.seq).where(EventRow.seq > after, EventRow.seq <= up_to).order_by(EventRow.seq).limit(limit).subquery()
    reached: int | None = await session.scalar(select(func.max(looked_at.c.seq)))
    if reached is None:
        return None
    living = select(JobRow.id).where(JobRow.state.not_in(TERMINAL_JOB_STATES))
    may_go = or_(EventRow.job_id.is_(None), EventRow.job_id.not_in(living), EventRow.type.startswith("checkpoint."))
    await session.execute(delete(EventRow).where(EventRow.seq > after, EventRow.seq <= reached, may_go))
    return reached


#: What faults and saves add to a living job's history without end. Its goodput and its incidents go by other records.
_REPEATED = and_(or_(EventRow.type == "rank.exited", EventRow.type.startswith("checkpoint.")), not_(IS_BY_PEOPLE))


async def living_jobs_with_events(session: AsyncSession, more_than: int) -> Sequence[str]:
    """The jobs that have not ended and have more events than that, of all kinds."""
    living = select(JobRow.id).where(JobRow.state.not_in(TERMINAL_JOB_STATES))
    query = select(EventRow.job_id).where(EventRow.job_id.in_(living)).group_by(EventRow.job_id).having(func.count() > more_than)
    return [str(job_id) for job_id in await session.scalars(query)]


async def drop_repeated_events(session: AsyncSession, job_id: str, keep: int, limit: int) -> int:
    """Delete a job's oldest events of ranks' ends and of checkpoints beyond the newest `keep`, but for those of people; at most `limit` of them. Returns
    how many there were."""
    mine = (EventRow.job_id == job_id, _REPEATED)
    last = await session.scalar(select(EventRow.seq).where(*mine).order_by(EventRow.seq.desc()).offset(keep).limit(1))
    if last is None:
        return 0
    oldest = select(EventRow.seq).where(*mine, EventRow.seq <= last).order_by(EventRow.seq).limit(limit)
    found = list(await session.scalars(oldest))
    await session.execute(delete(EventRow).where(EventRow.seq.in_(found)))
    return len(found)


# --- checkpoints


async def drop_checkpoints(session: AsyncSession, saved_before: datetime, limit: int) -> int:
    """Delete at most `limit` records of deleted checkpoints that were saved before then, and return how many there were. Those stay that a job was
    started or set back from, or that are a version of a model, and the newest record of each generation of a job."""
    row, later = CheckpointRow, aliased(CheckpointRow)
    users = (JobRow.restored_from, GenerationRow.restored_checkpoint_id, ModelVersionRow.checkpoint_id)
    unused = [row.id.not_in(select(user).where(user.is_not(None))) for user in users]
    has_later = exists().where(later.job_id == row.job_id, later.generation == row.generation, later.step > row.step)
    query = select(row.id).where(row.state == CheckpointState.DELETED, row.created_at < saved_before, has_later, *unused)
    found = list(await session.scalars(query.order_by(row.id).limit(limit)))
    if found:
        await session.execute(delete(row).where(row.id.in_(found)))
    return len(found)


# --- ranks


def _is_finished() -> ColumnElement[bool]:
    """The condition that nothing more can come from a rank: it has exited with all records acknowledged, or its node is gone for good."""
    nodes = select(NodeRow.id).where(NodeRow.state == NodeState.GONE)
    return or_(and_(RankRow.state.in_([RankState.EXITED, RankState.MOVED]), RankRow.drained.is_(True)), RankRow.node_id.in_(nodes))


async def jobs_with_finished_ranks(
    session: AsyncSession, ended_before: datetime, limit: int, *, besides: Collection[str] = ()
) -> list[tuple[str, int]]:
    """(job, its newest generation) of jobs other than `besides` that ended long ago and have ranks of earlier generations that can go."""
    query = (
        select(JobRow.id, JobRow.generation)
        .where(JobRow.ended_at < ended_before, JobRow.id.not_in(besides), RankRow.generation < JobRow.generation, _is_finished())
        .join(RankRow, RankRow.job_id == JobRow.id)
        .distinct()
        .limit(limit)
    )
    return [(job_id, generation) for job_id, generation in await session.execute(query)]


async def jobs_with_ranks_of_generations(
    session: AsyncSession, more_than: int, limit: int, *, besides: Collection[str]
) -> list[tuple[str, int]]:
    """(job, the first generation to keep) of jobs other than `besides` that have finished ranks of a generation before their newest `more_than`. A job
    keeps the newest generation in which it ran, which tells on which nodes its own folder is."""
    too_old = (RankRow.job_id == JobRow.id, RankRow.generation <= JobRow.generation - more_than, _is_finished())
    ran = select(func.max(RankRow.generation)).where(RankRow.job_id == JobRow.id, RankRow.rank == 0, RankRow.pid.is_not(None))
    query = select(JobRow.id, JobRow.generation, ran.scalar_subquery())
    query = query.where(JobRow.generation > more_than, JobRow.id.not_in(besides), exists().where(*too_old)).limit(limit)
    return [(job_id, min(newest - more_than + 1, last_ran or 0)) for job_id, newest, last_ran in await session.execute(query)]


async def drop_ranks(session: AsyncSession, job_id: str, before_generation: int) -> list[tuple[int, int]]:
    """Delete finished ranks of earlier generations, with their event marks. Returns those that may still send something, by generation and rank."""
    mine = (RankRow.job_id == job_id, RankRow.generation < before_generation)
    await session.execute(delete(RankRow).where(*mine, _is_finished()))
    left = [(generation, rank) for generation, rank in await session.execute(select(RankRow.generation, RankRow.rank).where(*mine))]
    place = tuple_(RankEventMarkRow.generation, RankEventMarkRow.rank)
    marks = (RankEventMarkRow.job_id == job_id, RankEventMarkRow.generation < before_generation, place.not_in(left))
    await session.execute(delete(RankEventMarkRow).where(*marks))
    return left


# --- files of ranks


async def old_artifacts(session: AsyncSession, before: datetime, limit: int, besides: Collection[str] = ()) -> Sequence[ArtifactRow]:
    """Traces, gradients and media from before `before`, of jobs other than `besides` that ended before then. Files are deleted by
    `artifact_files.old_files`."""
    query = select(ArtifactRow).join(JobRow, JobRow.id == ArtifactRow.job_id).where(ArtifactRow.kind.not_in(("file", "model")))
    query = query.where(ArtifactRow.created_at < before, JobRow.ended_at < before, JobRow.id.not_in(besides))
    return (await session.scalars(query.order_by(ArtifactRow.id).limit(limit))).all()


async def stuck_artifacts(
    session: AsyncSession, offered_before: datetime, silent_before: datetime, limit: int, besides: Collection[str] = ()
) -> Sequence[ArtifactRow]:
    """Artifacts of jobs other than `besides` that have been arriving since before `offered_before`, or since before `silent_before` from a node
    that is lost or gone."""
    away = NodeRow.state.in_([NodeState.LOST, NodeState.GONE])
    since = or_(ArtifactRow.created_at < offered_before, and_(ArtifactRow.created_at < silent_before, away))
    query = select(ArtifactRow).join(NodeRow, NodeRow.id == ArtifactRow.node_id)
    query = query.where(ArtifactRow.stored_at.is_(None), ArtifactRow.error.is_(None), ArtifactRow.job_id.not_in(besides), since)
    return (await session.scalars(query.order_by(ArtifactRow.id).limit(limit))).all()


async def known_artifacts(session: AsyncSession, artifact_ids: Collection[str]) -> set[str]:
    return set(await session.scalars(select(ArtifactRow.id).where(ArtifactRow.id.in_(artifact_ids))))


async def artifacts_of(session: AsyncSession, job_id: str, limit: int) -> Sequence[ArtifactRow]:
    return (await session.scalars(select(ArtifactRow).where(ArtifactRow.job_id == job_id).order_by(ArtifactRow.id).limit(limit))).all()


async def artifact_bytes(session: AsyncSession, *, files: bool) -> tuple[int, int]:
    """(number, bytes) of the files that jobs have left, or of traces and gradients, stored or arriving."""
    kept = ArtifactRow.kind.in_(("file", "model"))
    mine = kept if files else ~kept & (ArtifactRow.kind != "limit")
    count, size = (await session.execute(select(func.count(), func.sum(ArtifactRow.bytes)).where(mine))).one()
    return int(count), int(size or 0)


# --- requests to delete data


async def removal(session: AsyncSession, job_id: str) -> DataRemovalRow | None:
    return await session.get(DataRemovalRow, job_id, populate_existing=True)


async def open_removals(session: AsyncSession, limit: int) -> Sequence[DataRemovalRow]:
    """The requests that are not carried out yet, the oldest first."""
    query = select(DataRemovalRow).where(DataRemovalRow.done_at.is_(None)).order_by(DataRemovalRow.asked_at).limit(limit)
    return (await session.scalars(query)).all()


async def jobs_removed(session: AsyncSession) -> Sequence[str]:
    """The jobs whose requests have been carried out."""
    return (await session.scalars(select(DataRemovalRow.job_id).where(DataRemovalRow.done_at.is_not(None)))).all()


async def removals_of(session: AsyncSession, job_ids: Collection[str]) -> Sequence[DataRemovalRow]:
    return (await session.scalars(select(DataRemovalRow).where(DataRemovalRow.job_id.in_(job_ids)))).all()
