"""The browsers' live streams: one implementation for metrics, logs, events and readings of nodes.

A client gets `hello` at once, then everything beyond its cursor, then what comes, in batches of at most twenty a second. It
resumes with ?after=seq and misses nothing. Too far behind, it gets one `gap` to fetch over REST instead. New rows are read and
encoded once for all clients of a stream (`tails.py`). Four tasks serve a socket: one sends, one reads (else a peer that left is
never noticed), one watches that the identity still holds, and one that the peer takes what it is sent.

A frame is {seq, topic, type, data}; `seq` is the stream's own position, to resume from:

    topic    type      data
    metrics  record    {rank, generation, step, time, values {name: value}}
    logs     line      a LogEntry
    events   event     an Event
    readings record    {node_id, times, columns {subject: {metric: [a value or null for each time]}}}; subjects are host, gpu:0, net:eth0
    *        hello     {as_of_seq}
    *        gap       {from, to}: frames were dropped, fetch them over REST
    *        reset     {}: the cursor is too old or unknown, start over from a snapshot
    *        ping      {}

A channel is closed with:

    4400 too many messages    4401 no valid identity (any more)    4403 another site's page    4404 no such job or node    4408 too slow
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from time import monotonic

from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from paceline.api.core import bus, identity
from paceline.api.core.bus import Subscription
from paceline.api.core.context import Services
from paceline.api.core.identity import Caller
from paceline.api.core.origin import same_origin
from paceline.api.deps import find_caller, services_of
from paceline.api.websocket.sources import (
    EncodedFrame,
    EventsSource,
    Frame,
    LogsSource,
    MetricsSource,
    ReadingsSource,
    StreamSource,
    encoded,
)
from paceline.api.websocket.tails import BATCH_ROWS, MOST_ROWS_BEHIND, SECONDS_BETWEEN_BATCHES, SharedTails, TableTail
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories.streams import has_more_than

router = APIRouter()
PING_SECONDS = 15.0
#: How soon another replica's changes are found where no nudge tells of them.
OTHER_REPLICAS_SECONDS = 0.8
SEND_SECONDS = 10.0
#: Of a client, whose messages have no meaning yet: reading them costs as much as any request, and nothing else counts them.
MOST_MESSAGES = 100
TOO_MANY, NO_IDENTITY, OTHER_SITE, NOT_FOUND, TOO_SLOW = 4400, 4401, 4403, 4404, 4408


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


@router.websocket("/cluster/stream")
async def stream_readings(websocket: WebSocket) -> None:
    await serve(websocket, ReadingsSource(websocket.query_params.get("node_id")), None)


async def serve(websocket: WebSocket, source: StreamSource, job_id: str | None) -> None:
    """Check the caller before accepting; then stream until either side ends."""
    services = services_of(websocket)
    code, caller = await _admit(websocket, services, job_id, source.node_id if isinstance(source, ReadingsSource) else None)
    await websocket.accept()  # also for a refusal: browsers see a close code only on an accepted socket
    if caller is None:
        await websocket.close(code)
        return
    follower = Follower(websocket, services, source)
    code = await _first_to_end(
        asyncio.create_task(follower.run()),
        asyncio.create_task(follower.stuck()),
        asyncio.create_task(_until_peer_leaves(websocket)),
        asyncio.create_task(_until_revoked(services, caller)),
    )
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):  # the peer may be gone already
        await websocket.close(code)


async def _admit(websocket: WebSocket, services: Services, job_id: str | None, node_id: str | None) -> tuple[int, Caller | None]:
    if not same_origin(websocket):
        return OTHER_SITE, None
    caller = await find_caller(websocket)
    if caller is None:
        return NO_IDENTITY, None
    async with services.control.read() as session:
        if job_id is not None and await job_rows.state_of(session, job_id) is None:
            return NOT_FOUND, None
        if node_id is not None and await node_rows.get(session, node_id) is None:
            return NOT_FOUND, None
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


async def _until_peer_leaves(websocket: WebSocket) -> int:
    """Ends when the peer leaves, or has sent MOST_MESSAGES."""
    for _ in range(MOST_MESSAGES):
        if (await websocket.receive())["type"] == "websocket.disconnect":
            return 1000
    return TOO_MANY


async def _until_revoked(services: Services, caller: Caller) -> int:
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
    source: StreamSource
    position: int = 0
    last_sent: float = 0.0
    _sending_since: float | None = None

    async def run(self) -> int:
        tails: SharedTails = self.websocket.app.state.tails
        try:
            newest = await self._send_hello()
            async with tails.follow(self.source, newest) as (tail, nudges):
                await self._follow(tail, nudges)
        except (WebSocketDisconnect, RuntimeError):  # closed under our hands
            return 1000
        return 1000

    async def stuck(self) -> int:
        """Ends when the peer has taken nothing that is sent to it for SEND_SECONDS, or half as long again."""
        while True:
            await asyncio.sleep(SEND_SECONDS / 2)
            if self._sending_since is not None and monotonic() - self._sending_since >= SEND_SECONDS:
                return TOO_SLOW

    async def _send_hello(self) -> int:
        """Send a hello, then find where to start: live without a cursor, at the cursor, or anew where the cursor is unknown. Returns the
        newest seq."""
        async with self.source.database(self.services).read() as session:
            newest = await self.source.newest(session)
        await self._send(self._encoded(newest, "hello", {"as_of_seq": newest}))
        asked = self.websocket.query_params.get("after")
        self.position = newest if asked is None else int(asked) if asked.isdecimal() and len(asked) < 19 else newest + 1
        if self.position > newest:
            self.position = newest
            await self._send(self._encoded(newest, "reset", {}))
        return newest

    async def _follow(self, tail: TableTail, nudges: Subscription) -> None:
        while True:
            frames = tail.after(self.position)
            if frames is None:
                await self._catch_up(tail)
                continue
            if frames:
                await self._send(*frames)
                self.position = frames[-1].seq
            if not await nudges.wait(self._until_ping()) and monotonic() - self.last_sent >= PING_SECONDS:
                await self._send(self._encoded(self.position, "ping", {}))

    def _until_ping(self) -> float:
        return max(0.05, self.last_sent + PING_SECONDS - monotonic())

    async def _catch_up(self, tail: TableTail) -> None:
        """One batch from the table, for a client that is further behind than the tail reaches."""
        reaches = tail.start
        frames = await self._batch()
        if frames:
            await self._send(*(encoded(self.source.topic, frame) for frame in frames))
            self.position = frames[-1].seq
        if len(frames) < BATCH_ROWS:  # that was all there is, so nothing is left before the tail as it was
            self.position = max(self.position, reaches)
        await asyncio.sleep(SECONDS_BETWEEN_BATCHES)

    async def _batch(self) -> list[Frame]:
        async with self.source.database(self.services).read() as session:
            frames = list(await self.source.after(session, self.position, BATCH_ROWS))
            if len(frames) == BATCH_ROWS and await has_more_than(
                session, self.source.table, MOST_ROWS_BEHIND, after=self.position, owner=self.source.owner
            ):
                newest = await self.source.newest(session)
                frames = [Frame(newest, "gap", {"from": self.position + 1, "to": newest})]
        return frames

    def _encoded(self, seq: int, type: str, data: dict[str, int]) -> EncodedFrame:
        return encoded(self.source.topic, Frame(seq, type, data))

    async def _send(self, *frames: EncodedFrame) -> None:
        for frame in frames:
            self._sending_since = monotonic()
            await self.websocket.send_text(frame.text)
        self._sending_since, self.last_sent = None, monotonic()
