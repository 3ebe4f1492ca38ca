"""Engines of one test process share what they have compiled: each test has databases of its own, and would compile every statement again."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Dialect
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.util import LRUCache

from paceline.db import session

#: More than the product has, so that none is compiled twice.
MOST_STATEMENTS = 10_000


class SharedStatements:
    """What engines have compiled, by their driver. SQLAlchemy keys a compiled statement by the dialect that it was compiled with, so they share that too."""

    def __init__(self) -> None:
        self._dialects: dict[str, Dialect] = {}
        self._compiled: LRUCache[Any, Any] = LRUCache(MOST_STATEMENTS)

    def join(self, engine: AsyncEngine) -> None:
        """Let a new engine use what earlier ones have compiled."""
        own = engine.sync_engine
        known = self._dialects.get(own.dialect.driver)
        if (
            known is None or getattr(known, "server_version_info", None) is None
        ):  # it has not seen a server, which is when a dialect learns what it can do
            known = self._dialects[own.dialect.driver] = own.dialect
        own.dialect, own.pool._dialect, own._compiled_cache = known, known, self._compiled


def share() -> None:
    """Share among all engines that this process makes from now on."""
    shared = SharedStatements()

    def made(*arguments: Any, **options: Any) -> AsyncEngine:
        engine = create_async_engine(*arguments, **options)
        shared.join(engine)
        return engine

    pytest.MonkeyPatch().setattr(session, "create_async_engine", made)
