"""Queries about the secrets of projects, and about the key that they are sealed with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.dialects import dialect_of
from paceline.db.models.jobs import OPEN, JobRow, RankRow
from paceline.db.models.notifications import ChannelRow
from paceline.db.models.secrets import CURRENT, SecretRow, VaultRow

_VAULT = "vault"


# --- secrets


async def of_project(session: AsyncSession, project: str | None) -> Sequence[SecretRow]:
    """The current secrets of a project, or of all, by project and name."""
    query = select(SecretRow).where(CURRENT) if project is None else select(SecretRow).where(CURRENT, SecretRow.project == project)
    return (await session.scalars(query.order_by(SecretRow.project, SecretRow.name))).all()


async def current(session: AsyncSession, project: str, name: str) -> SecretRow | None:
    return (await session.scalars(select(SecretRow).where(CURRENT, SecretRow.project == project, SecretRow.name == name))).one_or_none()


async def of_names(session: AsyncSession, project: str, names: Collection[str]) -> Sequence[SecretRow]:
    """All values that the project's secrets of these names have or had, the oldest first."""
    query = select(SecretRow).where(SecretRow.project == project, SecretRow.name.in_(names))
    return (await session.scalars(query.order_by(SecretRow.id))).all()


async def retired(session: AsyncSession) -> Sequence[SecretRow]:
    return (await session.scalars(select(SecretRow).where(~CURRENT))).all()


async def open_jobs(session: AsyncSession, created_before: datetime) -> Sequence[JobRow]:
    """The jobs that have ranks whose end is not yet confirmed."""
    ranks = select(RankRow.job_id).where(RankRow.job_id == JobRow.id, OPEN).exists()
    return (await session.scalars(select(JobRow).where(JobRow.created_at < created_before, ranks))).all()


# --- what is sealed


async def everything_sealed(session: AsyncSession) -> tuple[Sequence[SecretRow], Sequence[ChannelRow]]:
    """All rows that have something sealed in them: secrets by project and name, and channels of notifications by name."""
    secrets = await session.scalars(select(SecretRow).order_by(SecretRow.project, SecretRow.name, SecretRow.id))
    return secrets.all(), (await session.scalars(select(ChannelRow).order_by(ChannelRow.name))).all()


async def vault_locked(session: AsyncSession, key_id: str) -> VaultRow:
    """The vault, which is begun with this key where there is none. Whoever seals holds its lock, so that no key is taken away meanwhile."""
    dialect = dialect_of(session)
    await session.execute(dialect.insert(VaultRow).values(name=_VAULT, key_id=key_id).on_conflict_do_nothing())
    row = await session.get(VaultRow, _VAULT, with_for_update=True, populate_existing=True)
    assert row is not None
    return row


async def vault_key(session: AsyncSession) -> str | None:
    """The id of the key that everything is sealed with. None: nothing was sealed yet."""
    return await session.scalar(select(VaultRow.key_id).where(VaultRow.name == _VAULT))
