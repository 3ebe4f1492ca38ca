"""The newest frames of a stream, read once and encoded once for all of its clients.

A tail holds the last frames of one source. Clients at the end of the stream take them from here; one further behind reads the table for
itself until it has caught up. What a client gets, and in which order, is the same either way.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from paceline.api.core.background import in_background
from paceline.api.core.bus import Subscription
from paceline.api.core.context import Services
from paceline.api.websocket.sources import EncodedFrame, StreamSource, encoded
from paceline.db.repositories.streams import has_more_than

logger = logging.getLogger(__name__)
BATCH_ROWS = 500
SECONDS_BETWEEN_BATCHES = 0.05
MOST_ROWS_BEHIND = 5_000
#: A client that is slower than this many frames reads the table for itself.
KEPT_FRAMES = 500
#: How often the table is looked at although no nudge has come: by one replica alone, and by one of several, whose nudges may be missing.
LOOK_SECONDS, OTHER_REPLICAS_SECONDS = 15.0, 0.8


@dataclass
class TableTail:
    services: Services
    source: StreamSource
    start: int  # the frames below are all those beyond this one
    frames: list[EncodedFrame] = field(default_factory=list)
    followers: set[Subscription] = field(default_factory=set)

    def after(self, seq: int) -> list[EncodedFrame] | None:
        """The frames beyond `seq`; None: they begin too late, the table has more."""
        if seq < self.start:
            return None
        return self.frames[bisect_right(self.frames, seq, key=_seq) :]

    async def read(self) -> None:
        """Read new rows again and again, until cancelled."""
        with self.services.bus.subscribe(self.source.nudged_by) as nudges:
            while True:
                if await self.read_once():
                    await asyncio.sleep(SECONDS_BETWEEN_BATCHES)
                else:
                    await nudges.wait(LOOK_SECONDS if self.services.control.is_sqlite else OTHER_REPLICAS_SECONDS)

    async def read_once(self) -> bool:
        """Read new rows once. Returns whether there were any."""
        newest = self.frames[-1].seq if self.frames else self.start
        async with self.source.database(self.services).read() as session:
            rows = await self.source.after(session, newest, BATCH_ROWS)
            behind = len(rows) == BATCH_ROWS and await has_more_than(
                session, self.source.table, MOST_ROWS_BEHIND, after=newest, owner=self.source.owner
            )
            if behind:  # no client can take that much: each finds the gap by its own reading
                self.start, self.frames = await self.source.newest(session), []
        if not behind:
            self._append([encoded(self.source.topic, row) for row in rows])
        if rows:
            for follower in self.followers:
                follower.nudge()
        return bool(rows)

    def _append(self, frames: list[EncodedFrame]) -> None:
        self.frames += frames
        if len(self.frames) > 2 * KEPT_FRAMES:
            self.start = self.frames[-KEPT_FRAMES - 1].seq
            self.frames = self.frames[-KEPT_FRAMES:]


def _seq(frame: EncodedFrame) -> int:
    return frame.seq


@dataclass
class SharedTails:
    """One tail for each source with a client, for as long as it has one."""

    services: Services
    _tails: dict[StreamSource, TableTail] = field(default_factory=dict)
    _readers: dict[StreamSource, asyncio.Task[None]] = field(default_factory=dict)

    @asynccontextmanager
    async def follow(self, source: StreamSource, newest: int) -> AsyncIterator[tuple[TableTail, Subscription]]:
        """The tail, and the subscription that is nudged when it has grown. `newest`: where it begins if it has no client yet."""
        tail = self._tails.get(source)
        if tail is None:
            tail = self._tails[source] = TableTail(self.services, source, newest)
            self._readers[source] = asyncio.create_task(_keep_reading(tail), name=f"tail:{source.topic}")
        mine = Subscription()
        tail.followers.add(mine)
        try:
            yield tail, mine
        finally:
            tail.followers.discard(mine)
            if not tail.followers:
                del self._tails[source]
                await _end(self._readers.pop(source))


async def _keep_reading(tail: TableTail) -> None:
    """Read on and on. A failure is logged, and reading starts over where it was."""
    async with in_background(f"tail:{tail.source.topic}", tail.read):
        await asyncio.Event().wait()


async def _end(reader: asyncio.Task[None]) -> None:
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
