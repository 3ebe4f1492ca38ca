"""Queries about the files that jobs leave in $PACELINE_ARTIFACTS: versions of a path, folders, and what a job has of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.models.artifacts import ArtifactRow
from paceline.db.models.jobs import JobRow

#: Kinds of rows beside traces and gradients.
FILE, LIMIT = "file", "limit"
#: A file that a newer version has replaced, and that a version of a model is made of.
KEPT_FOR_A_MODEL = "model"


class FolderTotal(NamedTuple):
    """The kept files directly in one folder."""

    folder: str
    files: int
    bytes: int
    changed_ns: int


class JobFiles(NamedTuple):
    """The number and the bytes of a job's files, kept or arriving."""

    files: int
    bytes: int


def _kept(job_id: str) -> tuple[ColumnElement[bool], ...]:
    """The condition for versions that are whole and can be downloaded."""
    return ArtifactRow.job_id == job_id, ArtifactRow.kind == FILE, ArtifactRow.stored_at.is_not(None)


def _below(folder: str) -> ColumnElement[bool]:
    """The condition for files in a folder or in one below it; "": all."""
    if not folder:
        return ArtifactRow.folder.is_not(None)
    inside = func.substr(ArtifactRow.folder, 1, len(folder) + 1) == f"{folder}/"  # LIKE knows no capitals on SQLite
    return or_(ArtifactRow.folder == folder, inside)


async def versions(session: AsyncSession, job_id: str, paths: Collection[str], *, lock: bool = False) -> Sequence[ArtifactRow]:
    """All versions of these paths, kept or arriving, the oldest first. `lock`: no other transaction changes them meanwhile."""
    query = select(ArtifactRow).where(ArtifactRow.job_id == job_id, ArtifactRow.kind == FILE, ArtifactRow.path.in_(paths))
    query = query.order_by(ArtifactRow.id)
    return (await session.scalars(query.with_for_update().execution_options(populate_existing=True) if lock else query)).all()


async def totals_of_job(session: AsyncSession, job_id: str, without: Collection[str]) -> JobFiles:
    """The files that a job has, except for those with these paths."""
    mine = ArtifactRow.job_id == job_id, ArtifactRow.kind == FILE, ArtifactRow.path.not_in(without)
    count, size = (await session.execute(select(func.count(), func.sum(ArtifactRow.bytes)).where(*mine))).one()
    return JobFiles(int(count), int(size or 0))


async def by_path(session: AsyncSession, job_id: str, path: str) -> ArtifactRow | None:
    """The kept version of a file."""
    query = select(ArtifactRow).where(*_kept(job_id), ArtifactRow.path == path).order_by(ArtifactRow.id.desc()).limit(1)
    return (await session.scalars(query)).one_or_none()


async def in_folder(session: AsyncSession, job_id: str, folder: str, after: str | None, limit: int) -> Sequence[ArtifactRow]:
    """A page of the files directly in a folder, by path."""
    query = select(ArtifactRow).where(*_kept(job_id), ArtifactRow.folder == folder)
    if after is not None:
        query = query.where(ArtifactRow.path > after)
    return (await session.scalars(query.order_by(ArtifactRow.path).limit(limit))).all()


async def below(session: AsyncSession, job_id: str, folder: str, after: str | None, limit: int) -> Sequence[ArtifactRow]:
    """A page of the files in a folder and in all below it, by path."""
    query = select(ArtifactRow).where(*_kept(job_id), _below(folder))
    if after is not None:
        query = query.where(ArtifactRow.path > after)
    return (await session.scalars(query.order_by(ArtifactRow.path).limit(limit))).all()


async def folder_totals(session: AsyncSession, job_id: str, folder: str) -> list[FolderTotal]:
    """The folder and all below it that have files of their own."""
    columns = ArtifactRow.folder, func.count(), func.sum(ArtifactRow.bytes), func.coalesce(func.max(ArtifactRow.changed_ns), 0)
    query = select(*columns).where(*_kept(job_id), _below(folder)).group_by(ArtifactRow.folder)
    return [
        FolderTotal(str(name), count or 0, int(size or 0), int(changed or 0)) for name, count, size, changed in await session.execute(query)
    ]


async def arriving(session: AsyncSession, job_id: str) -> int:
    """How many files are on their way."""
    mine = ArtifactRow.job_id == job_id, ArtifactRow.kind == FILE, ArtifactRow.stored_at.is_(None)
    count: int | None = await session.scalar(select(func.count()).select_from(ArtifactRow).where(*mine))
    return count or 0


async def passed_limits(session: AsyncSession, job_id: str) -> Sequence[ArtifactRow]:
    """The rows that tell of limits which the job's files have passed, the first first."""
    query = select(ArtifactRow).where(ArtifactRow.job_id == job_id, ArtifactRow.kind == LIMIT)
    return (await session.scalars(query.order_by(ArtifactRow.id))).all()


def _old(before: datetime) -> ColumnElement[bool]:
    """The condition for files that were stored before `before`, of jobs that ended before then; with `JobRow` joined."""
    return and_(ArtifactRow.kind == FILE, ArtifactRow.held.is_(False), ArtifactRow.stored_at < before, JobRow.ended_at < before)


async def old_jobs(session: AsyncSession, before: datetime, limit: int, *, besides: Collection[str] = ()) -> Sequence[str]:
    """Jobs other than `besides` that ended before `before` and have files that were stored before then."""
    query = select(ArtifactRow.job_id).join(JobRow, JobRow.id == ArtifactRow.job_id)
    query = (
        query.where(_old(before), ArtifactRow.job_id.not_in(besides)).group_by(ArtifactRow.job_id).order_by(ArtifactRow.job_id).limit(limit)
    )
    return (await session.scalars(query)).all()


async def old_files(session: AsyncSession, job_id: str, before: datetime, limit: int) -> Sequence[ArtifactRow]:
    """The old files of a job, as `old_jobs` counts them."""
    query = select(ArtifactRow).join(JobRow, JobRow.id == ArtifactRow.job_id).where(ArtifactRow.job_id == job_id, _old(before))
    return (await session.scalars(query.order_by(ArtifactRow.id).limit(limit))).all()
