"""The time when each API key was last used: noted in memory, written every few seconds, so that reading never waits for a write."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy.exc import SQLAlchemyError

from paceline.api.core.background import in_background
from paceline.db.errors import DatabaseError
from paceline.db.repositories import identity as repository
from paceline.db.session import Database

logger = logging.getLogger(__name__)
SECONDS_BETWEEN_WRITES = 5.0


@dataclass
class KeyUses:
    database: Database
    _uses: dict[str, datetime] = field(default_factory=dict)
    _work: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, digest: str, now: datetime) -> None:
        self._uses[digest] = now
        self._work.set()

    async def flush(self) -> None:
        self._work.clear()
        uses, self._uses = self._uses, {}
        if uses:
            async with self.database.write() as session:
                await repository.touch_keys(session, uses)

    def running(self) -> AbstractAsyncContextManager[None]:
        return in_background("key-uses", self._run)

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            await asyncio.sleep(SECONDS_BETWEEN_WRITES)
            try:
                await self.flush()
            except (SQLAlchemyError, DatabaseError) as error:
                logger.warning("the last use of keys was not written; the next use is noted again: %s", error)
