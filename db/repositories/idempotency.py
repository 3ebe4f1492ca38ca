"""Idempotency keys: claimed and completed in one transaction."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any

from sqlalchemy import delete, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.dialects import is_postgres
from paceline.db.models.identity import IdempotencyKeyRow


async def lock(session: AsyncSession, user_id: str, key: str) -> bool:
    """Whether no other transaction holds this key. On SQLite there is only one writer, so no other can."""
    if not is_postgres(session):
        return True
    number = int.from_bytes(hashlib.sha256(f"{user_id}\0{key}".encode()).digest()[:8], signed=True)
    return bool(await session.scalar(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": number}))


async def claim(session: AsyncSession, row: IdempotencyKeyRow) -> IdempotencyKeyRow | None:
    """Claim a key. Returns None on success, else the row of the request that used it first."""
    earlier = await session.get(IdempotencyKeyRow, (row.user_id, row.key))
    if earlier is None:
        session.add(row)
        await session.flush()
    return earlier


async def complete(session: AsyncSession, user_id: str, key: str, response: dict[str, Any] | None) -> None:
    mine = (IdempotencyKeyRow.user_id == user_id, IdempotencyKeyRow.key == key)
    await session.execute(update(IdempotencyKeyRow).where(*mine).values(status=201, response=response))


async def forget_before(session: AsyncSession, moment: datetime) -> None:
    await session.execute(delete(IdempotencyKeyRow).where(IdempotencyKeyRow.created_at < moment))
