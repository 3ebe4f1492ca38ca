"""The time when each key and session was last used: noted in memory, written every few seconds, so that reading never waits for a write."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy.exc import SQLAlchemyError

from paceline.api.core.background import in_background
from paceline.api.core.identity import Caller
from paceline.db.errors import DatabaseError
from paceline.db.models.identity import ApiKeyRow, SessionRow
from paceline.db.repositories import identity as repository
from paceline.db.session import Database

logger = logging.getLogger(__name__)
SECONDS_BETWEEN_WRITES = 5.0
#: A later use is written only when the one before is this old: an open page asks every few seconds.
WORTH_WRITING = timedelta(minutes=1)
_TABLES: dict[str, type[ApiKeyRow | SessionRow]] = {"key": ApiKeyRow, "session": SessionRow}


@dataclass
class LastUses:
    database: Database
    _uses: dict[str, tuple[Caller, datetime]] = field(default_factory=dict)
    _work: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, caller: Caller, now: datetime) -> None:
        if caller.kind in _TABLES and (caller.used_at is None or now - caller.used_at >= WORTH_WRITING):
            self._uses[caller.credential] = (caller, now)
            self._work.set()

    async def flush(self) -> None:
        self._work.clear()
        uses, self._uses = self._uses, {}
        if uses:
            async with self.database.write() as session:
                for caller, moment in uses.values():
                    await repository.touch(session, _TABLES[caller.kind], caller.credential, caller.user_id, moment)

    def running(self) -> AbstractAsyncContextManager[None]:
        return in_background("last-uses", self._run)

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            await asyncio.sleep(SECONDS_BETWEEN_WRITES)
            try:
                await self.flush()
            except (SQLAlchemyError, DatabaseError) as error:
                logger.warning("the last use of keys and sessions was not written; the next use is noted again: %s", error)
