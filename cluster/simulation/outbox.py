"""What simulated ranks record until the coordinator has it: a real rank's spool, in memory, and the uploads of one agent.

As with a real agent every record has its number, events go first, and all is sent again until it is acknowledged: what a job records while
the coordinator is away arrives afterwards, exactly once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import httpx
import msgspec

from paceline.cluster.protocol import UPLOAD_PATH, RankKey
from paceline.monitoring.backoff import Backoff
from paceline.monitoring.points import EventKind, HighWater, LogLine, MetricRecord, RankBatch, RankEvent, Upload, UploadReply

#: The most records of one upload: about a megabyte, a quarter of what the coordinator takes.
MOST_RECORDS = 1_500
#: A real agent sends what there is as soon as there is any; a rank of a large model records something once in seconds.
UPLOAD_SECONDS = 1.0
REQUEST_SECONDS = 60.0
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.2, 10.0

log = logging.getLogger(__name__)


class RankOutbox:
    """The records of one rank in one generation that are not acknowledged yet, each stream in the order of its numbers."""

    def __init__(self, key: RankKey) -> None:
        self.key = key
        self._numbers = {"metrics": 0, "logs": 0, "events": 0}
        self._metrics: deque[MetricRecord] = deque()
        self._logs: deque[LogLine] = deque()
        self._events: deque[RankEvent] = deque()

    def __len__(self) -> int:
        return len(self._metrics) + len(self._logs) + len(self._events)

    def record(self, step: int, values: Mapping[str, float | str]) -> None:
        self._metrics.append(MetricRecord(seq=self._next("metrics"), step=step, time=time.time(), values=dict(values)))  # type: ignore[arg-type]

    def line(self, text: str, level: str = "info") -> None:
        self._logs.append(LogLine(seq=self._next("logs"), time=time.time(), level=level, text=text))  # type: ignore[arg-type]

    def event(self, kind: EventKind, **data: Any) -> None:
        self._events.append(RankEvent(seq=self._next("events"), time=time.time(), kind=kind, data=data))

    def batch(self, most: int) -> RankBatch:
        """The oldest records, `most` of each stream at most."""
        return RankBatch(
            job_id=self.key.job_id,
            generation=self.key.generation,
            rank=self.key.rank,
            metrics=list(islice(self._metrics, most)),
            logs=list(islice(self._logs, most)),
            events=list(islice(self._events, most)),
        )

    def acknowledge(self, mark: HighWater) -> None:
        """Forget what the coordinator holds."""
        streams = ((self._metrics, mark.metrics), (self._logs, mark.logs), (self._events, mark.events))
        for stream, highest in streams:
            while stream and stream[0].seq <= highest:
                stream.popleft()

    def _next(self, stream: str) -> int:
        self._numbers[stream] += 1
        return self._numbers[stream]


class OutboxUploader:
    """Sends the outboxes of one agent. `on_empty` is called with a rank each time all that it had recorded is acknowledged."""

    def __init__(self, http: httpx.AsyncClient, on_empty: Callable[[RankKey], None]) -> None:
        self._http, self._on_empty = http, on_empty
        self._outboxes: dict[RankKey, RankOutbox] = {}
        self._reachable = asyncio.Event()
        self._reachable.set()

    def follow(self, key: RankKey) -> RankOutbox:
        self._outboxes[key] = RankOutbox(key)
        return self._outboxes[key]

    def forget(self, key: RankKey) -> None:
        self._outboxes.pop(key, None)

    def is_empty(self, key: RankKey) -> bool:
        return not self._outboxes.get(key)

    def backlog(self) -> int:
        return sum(map(len, self._outboxes.values()))

    def hold(self) -> None:
        """Send nothing until `release`: the node's network is gone, or the node."""
        self._reachable.clear()

    def release(self) -> None:
        self._reachable.set()

    async def run(self) -> None:
        """Upload whatever there is, for ever."""
        backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        while True:
            await self._reachable.wait()
            try:
                more = await self._upload_once()
                backoff.reset()
            except httpx.HTTPError as error:
                log.debug("nothing uploaded: %s", error)
                await backoff.pause()
                continue
            await asyncio.sleep(0 if more else UPLOAD_SECONDS)

    async def _upload_once(self) -> bool:
        """Send the oldest records. Returns True where more are waiting. Raises httpx.HTTPError."""
        waiting = [outbox for outbox in self._outboxes.values() if outbox]
        if not waiting:
            return False
        most = max(1, MOST_RECORDS // len(waiting))
        body = msgspec.json.encode(Upload(batches=[outbox.batch(most) for outbox in waiting]))
        answer = await self._http.post(UPLOAD_PATH, content=body, timeout=REQUEST_SECONDS)
        answer.raise_for_status()
        for mark in msgspec.json.decode(answer.content, type=UploadReply).acknowledged:
            key = RankKey(mark.job_id, mark.generation, mark.rank)
            if key in self._outboxes:
                self._outboxes[key].acknowledge(mark)
                if not self._outboxes[key]:
                    self._on_empty(key)
        return any(map(len, waiting))
