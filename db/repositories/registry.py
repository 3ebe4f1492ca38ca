"""Queries about registered models, their versions and aliases."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import false, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.dialects import dialect_of
from paceline.db.models.jobs import JobRow
from paceline.db.models.registry import ModelAliasRow, ModelRow, ModelVersionRow


async def by_name(session: AsyncSession, name: str, *, lock: bool = False) -> ModelRow | None:
    """A model. `lock`: nobody else registers a version or moves an alias meanwhile."""
    query = select(ModelRow).where(ModelRow.name == name)
    return (await session.scalars(query.with_for_update().execution_options(populate_existing=True) if lock else query)).one_or_none()


async def add_if_new(session: AsyncSession, row: dict[str, object]) -> None:
    """Store a model unless its name is taken."""
    dialect = dialect_of(session)
    await session.execute(dialect.insert(ModelRow).values(row).on_conflict_do_nothing())


async def page(session: AsyncSession, after: str | None, limit: int) -> Sequence[ModelRow]:
    query = select(ModelRow) if after is None else select(ModelRow).where(ModelRow.name > after)
    return (await session.scalars(query.order_by(ModelRow.name).limit(limit))).all()


async def versions_of(session: AsyncSession, model_ids: Collection[str]) -> Sequence[tuple[ModelVersionRow, str]]:
    """All versions of these models, each with its job's name, the newest first."""
    query = select(ModelVersionRow, JobRow.name).join(JobRow, JobRow.id == ModelVersionRow.job_id)
    query = query.where(ModelVersionRow.model_id.in_(model_ids)).order_by(ModelVersionRow.number.desc())
    return [(version, job_name) for version, job_name in await session.execute(query)]


async def aliases_of(session: AsyncSession, model_ids: Collection[str]) -> Sequence[ModelAliasRow]:
    query = select(ModelAliasRow).where(ModelAliasRow.model_id.in_(model_ids)).order_by(ModelAliasRow.alias)
    return (await session.scalars(query)).all()


async def alias(session: AsyncSession, model_id: str, name: str) -> ModelAliasRow | None:
    return await session.get(ModelAliasRow, (model_id, name))


async def version(session: AsyncSession, model_id: str, number: int) -> ModelVersionRow | None:
    query = select(ModelVersionRow).where(ModelVersionRow.model_id == model_id, ModelVersionRow.number == number)
    return (await session.scalars(query)).one_or_none()


async def holders(session: AsyncSession, *, checkpoint_id: str | None = None, artifact_id: str | None = None) -> list[str]:
    """The versions that are this checkpoint or this file, as `name:number`."""
    mine = or_(
        ModelVersionRow.checkpoint_id == checkpoint_id if checkpoint_id else false(),
        ModelVersionRow.artifact_id == artifact_id if artifact_id else false(),
    )
    query = select(ModelRow.name, ModelVersionRow.number).join(ModelRow, ModelRow.id == ModelVersionRow.model_id).where(mine)
    return [f"{name}:{number}" for name, number in await session.execute(query.order_by(ModelRow.name, ModelVersionRow.number))]


async def versions_of_checkpoint(session: AsyncSession, checkpoint_id: str) -> Sequence[ModelVersionRow]:
    """The versions that are this checkpoint."""
    return (await session.scalars(select(ModelVersionRow).where(ModelVersionRow.checkpoint_id == checkpoint_id))).all()


async def from_files_of_job(session: AsyncSession, job_id: str) -> list[str]:
    """The versions that are files of this job, as `name:number`."""
    query = select(ModelRow.name, ModelVersionRow.number).join(ModelRow, ModelRow.id == ModelVersionRow.model_id)
    query = query.where(ModelVersionRow.job_id == job_id, ModelVersionRow.artifact_id.is_not(None))
    return [f"{name}:{number}" for name, number in await session.execute(query.order_by(ModelRow.name, ModelVersionRow.number))]
