"""Queries for leases, which give each loop to one process. Taking one is a compare-and-set on its row."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import delete, or_
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.dialects import dialect_of
from paceline.db.models.leases import LeaseRow


async def take(session: AsyncSession, name: str, holder: str, now: datetime, expires_at: datetime, *, by_force: bool = False) -> bool:
    """Take or renew the lease. Returns False while another process's lease is still valid. `by_force` takes it all the same."""
    dialect = dialect_of(session)
    fresh = dialect.insert(LeaseRow).values(name=name, holder=holder, expires_at=expires_at)
    allowed = None if by_force else or_(LeaseRow.holder == holder, LeaseRow.expires_at <= now)
    upsert = fresh.on_conflict_do_update(
        index_elements=[LeaseRow.name], set_={"holder": fresh.excluded.holder, "expires_at": fresh.excluded.expires_at}, where=allowed
    )
    taken: str | None = await session.scalar(upsert.returning(LeaseRow.holder))
    return taken == holder


async def release(session: AsyncSession, name: str, holder: str) -> None:
    await session.execute(delete(LeaseRow).where(LeaseRow.name == name, LeaseRow.holder == holder))
