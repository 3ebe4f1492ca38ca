"""Which database a session speaks to, where SQLite and PostgreSQL differ."""

from __future__ import annotations

from typing import Any

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession


def is_postgres(session: AsyncSession) -> bool:
    return session.get_bind().dialect.name == "postgresql"


def dialect_of(session: AsyncSession) -> Any:
    """The module of the session's dialect: its `insert` says what is done about a conflict."""
    return postgresql if is_postgres(session) else sqlite
