"""The browsers' live streams: one implementation for metrics, logs and events.

A client gets `hello` at once, then everything beyond its cursor, then what comes, in batches of at most twenty a second. It
resumes with ?after=seq and misses nothing. Too far behind, it gets one `gap` to fetch over REST instead. Three tasks
serve a socket: one sends, one reads (else a peer that left is never noticed), one watches that the identity still holds.

    4401 no valid identity (any more)    4403 another site's page    4404 no such job    4408 too slow
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from time import monotonic

from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from api.deps import Services, find_caller, services_of
from api.middleware.origin import same_origin
from api.services import bus, identity
from api.services.bus import Subscription
from api.services.identity import Caller
from api.websocket.sources import EventsSource, Frame, LogsSource, MetricsSource, Source, encode
from db.repositories import logs as job_rows
from db.repositories.streams import has_more_than

router = APIRouter()
BATCH_ROWS = 500
SECONDS_BETWEEN_BATCHES = 0.05
MOST_ROWS_BEHIND = 5_000
PING_SECONDS = 15.0
#: How soon another replica's changes are found where no nudge tells of them.
OTHER_REPLICAS_SECONDS = 0.8
SEND_SECONDS = 10.0
NO_IDENTITY, OTHER_SITE, NO_JOB, TOO_SLOW = 4401, 4403, 4404, 4408


@router.websocket("/metrics/stream/{job_id}")
async def stream_metrics(websocket: WebSocket, job_id: str) -> None:
    await serve(websocket, MetricsSource(job_id), job_id)


@router.websocket("/training/jobs/{job_id}/logs/stream")
async def stream_logs(websocket: WebSocket, job_id: str) -> None:
    await serve(websocket, LogsSource(job_id), job_id)


@router.websocket("/events/stream")
async def stream_events(websocket: WebSocket) -> None:
    job_id = websocket.query_params.get("job_id")
    await serve(websocket, EventsSource(job_id), job_id)


async def serve(websocket: WebSocket, source: Source, job_id: str | None) -> None:
    """Check who asks before accepting; then stream until either side has enough."""
    services = services_of(websocket)
    code, caller = await _admit(websocket, services, job_id)
    await websocket.accept()  # also for a refusal: browsers see a close code only on an accepted socket
    if caller is None:
        await websocket.close(code)
        return
    follower = Follower(websocket, services, source)
    code = await _first_to_end(
        asyncio.create_task(follower.run()), asyncio.create_task(_left(websocket)), asyncio.create_task(_revoked(services, caller))
    )
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):  # the peer may be gone already
        await websocket.close(code)


async def _admit(websocket: WebSocket, services: Services, job_id: str | None) -> tuple[int, Caller | None]:
    if not same_origin(websocket):
        return OTHER_SITE, None
    caller = await find_caller(websocket)
    if caller is None:
        return NO_IDENTITY, None
    if job_id is not None:
        async with services.control.read() as session:
            if await job_rows.job_state(session, job_id) is None:
                return NO_JOB, None
    return 1000, caller


async def _first_to_end(*tasks: asyncio.Task[int]) -> int:
    """The close code of whichever task ends first; the others are cancelled."""
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _left(websocket: WebSocket) -> int:
    """Ends when the peer does. What it says meanwhile has no meaning yet."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        continue
    return 1000


async def _revoked(services: Services, caller: Caller) -> int:
    """Ends when the credential that opened the socket would not open it again."""
    look_again = PING_SECONDS if services.control.is_sqlite else OTHER_REPLICAS_SECONDS
    with services.bus.subscribe(bus.IDENTITY) as changes:
        while True:
            await changes.wait(look_again)
            async with services.control.read() as session:
                if not await identity.still_valid(session, caller, services.now()):
                    return NO_IDENTITY


@dataclass
class Follower:
    """One client's place in one stream."""

    websocket: WebSocket
    services: Services
    source: Source
    position: int = 0
    last_sent: float = 0.0

    async def run(self) -> int:
        try:
            with self.services.bus.subscribe(self.source.nudged_by) as nudges:
                await self._greet()
                async for frames in self._news(nudges):
                    await self._send(*frames)
        except TimeoutError:
            return TOO_SLOW
        except (WebSocketDisconnect, RuntimeError):  # closed under our hands
            return 1000
        return 1000

    async def _greet(self) -> None:
        """hello, then where to start: live without a cursor, at the cursor, or anew where the cursor is none of ours."""
        async with self.source.database(self.services).read() as session:
            newest = await self.source.newest(session)
        await self._send(Frame(newest, "hello", {"as_of_seq": newest}))
        asked = self.websocket.query_params.get("after")
        self.position = newest if asked is None else int(asked) if asked.isdecimal() and len(asked) < 19 else newest + 1
        if self.position > newest:
            self.position = newest
            await self._send(Frame(newest, "reset", {}))

    async def _news(self, nudges: Subscription) -> AsyncIterator[list[Frame]]:
        while True:
            frames = await self._batch()
            if frames:
                yield frames
                await asyncio.sleep(SECONDS_BETWEEN_BATCHES)
            elif not await nudges.wait(self._patience()) and monotonic() - self.last_sent >= PING_SECONDS:
                yield [Frame(self.position, "ping", {})]

    def _patience(self) -> float:
        """Until the next ping; on PostgreSQL shorter, because another replica's nudges may be missing."""
        until_ping = max(0.05, self.last_sent + PING_SECONDS - monotonic())
        return until_ping if self.services.control.is_sqlite else min(until_ping, OTHER_REPLICAS_SECONDS)

    async def _batch(self) -> list[Frame]:
        async with self.source.database(self.services).read() as session:
            frames = list(await self.source.after(session, self.position, BATCH_ROWS))
            if len(frames) == BATCH_ROWS and await has_more_than(
                session, self.source.table, MOST_ROWS_BEHIND, after=self.position, job_id=self.source.job_id
            ):
                newest = await self.source.newest(session)
                frames = [Frame(newest, "gap", {"from": self.position + 1, "to": newest})]
        if frames:
            self.position = frames[-1].seq
        return frames

    async def _send(self, *frames: Frame) -> None:
        async with asyncio.timeout(SEND_SECONDS):
            for frame in frames:
                await self.websocket.send_text(encode(self.source.topic, frame))
        self.last_sent = monotonic()
