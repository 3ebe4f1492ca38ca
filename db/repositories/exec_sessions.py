"""Queries for exec sessions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.models.exec_sessions import ExecSessionRow


class LiveSessions(NamedTuple):
    """How many sessions are open."""

    of_node: int
    of_user: int


async def get(session: AsyncSession, id: str) -> ExecSessionRow | None:
    return await session.get(ExecSessionRow, id)


async def count(session: AsyncSession, node_id: str, user_id: str, seen_since: datetime) -> LiveSessions:
    """The sessions of a node and of a user that have been seen to live since then."""
    live = select(
        func.count().filter(ExecSessionRow.node_id == node_id),
        func.count().filter(ExecSessionRow.user_id == user_id),
    ).where(ExecSessionRow.seen_at >= seen_since)
    of_node, of_user = (await session.execute(live)).one()
    return LiveSessions(of_node, of_user)


async def not_asked(session: AsyncSession, node_ids: Collection[str]) -> Sequence[ExecSessionRow]:
    """The sessions that agents of these nodes are yet to be told of, the oldest first."""
    query = select(ExecSessionRow).where(ExecSessionRow.asked.is_(False), ExecSessionRow.refusal.is_(None))
    rows = await session.scalars(query.order_by(ExecSessionRow.id))
    return [row for row in rows if row.node_id in node_ids]


async def mark_asked(session: AsyncSession, ids: Collection[str]) -> None:
    await session.execute(update(ExecSessionRow).where(ExecSessionRow.id.in_(ids)).values(asked=True))


async def mark_refused(session: AsyncSession, ids: Collection[str], why: str) -> None:
    await session.execute(update(ExecSessionRow).where(ExecSessionRow.id.in_(ids)).values(refusal=why))


async def mark_seen(session: AsyncSession, ids: Collection[str], now: datetime) -> None:
    await session.execute(update(ExecSessionRow).where(ExecSessionRow.id.in_(ids)).values(seen_at=now))


async def silent(session: AsyncSession, since: datetime) -> Sequence[ExecSessionRow]:
    """The sessions that have not been seen since then, the oldest first: the replica that had their clients has ended."""
    return list(await session.scalars(select(ExecSessionRow).where(ExecSessionRow.seen_at < since).order_by(ExecSessionRow.id)))


async def remove(session: AsyncSession, id: str) -> bool:
    """Delete a session. Returns whether it was there: of two that end it one tells."""
    found = await session.execute(delete(ExecSessionRow).where(ExecSessionRow.id == id).returning(ExecSessionRow.id))
    return found.scalar_one_or_none() is not None
