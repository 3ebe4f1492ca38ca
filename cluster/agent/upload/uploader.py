"""Sends the files of ranks to the coordinator: one upload in flight, events before metrics before logs, again until acknowledged.

An error with one rank's files or records holds up no other rank: that rank rests a while, and is tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import httpx

from paceline.cluster.agent.isolation import Isolation
from paceline.cluster.agent.upload.delivery import MAX_BYTES, Delivery, UploadFailedError
from paceline.cluster.agent.upload.parcel import Budget, Parcel
from paceline.cluster.agent.upload.spool import RankSpool
from paceline.cluster.protocol import RankKey
from paceline.monitoring.backoff import Backoff
from paceline.monitoring.beats import until_beat

MAX_RECORDS = 5_000
MAX_BATCHES = 1_000
#: What metrics, and what logs, may always take of an upload, so that none starves the others.
LOG_RECORDS = 1_000
METRIC_BYTES = LOG_BYTES = 1 << 20
#: The most events of an upload: the coordinator applies each by itself, and nothing else is uploaded meanwhile.
EVENT_RECORDS = 500
ENVELOPE_BYTES = 256 << 10
POLL_SECONDS = 0.25
SAVE_SECONDS = 5.0
FIRST_RETRY_SECONDS = 0.2
LONGEST_RETRY_SECONDS = 10.0

log = logging.getLogger(__name__)


class RankRest(NamedTuple):
    """Until when nothing of a rank is sent. Monotonic seconds."""

    until: float
    backoff: Backoff


class Uploader:
    """Uploads the spools of all ranks. `on_drained` is called once for each rank that has exited and of which nothing is left to send."""

    def __init__(self, http: httpx.AsyncClient, on_drained: Callable[[RankKey], None], isolation: Isolation | None = None) -> None:
        self._on_drained = on_drained
        self._isolation = isolation or Isolation()
        self._spools: dict[RankKey, RankSpool] = {}
        self._delivery = Delivery(http, self._spools)
        self._resting: dict[RankKey, RankRest] = {}
        self._suspects: set[RankKey] = set()
        self._exited: set[RankKey] = set()
        self._news = asyncio.Event()
        self._reachable = asyncio.Event()
        self._in_flight = asyncio.Lock()
        self._saved_at = 0.0
        self._failing = False
        self._followed = asyncio.Event()

    def follow(self, key: RankKey, spool: RankSpool) -> None:
        self._spools[key] = spool
        self._followed.set()
        self.nudge()  # without ranks nothing is polled

    def exited(self, key: RankKey) -> None:
        """Note that a rank has exited, and writes nothing more."""
        self._exited.add(key)
        self.nudge()

    def forget(self, key: RankKey) -> None:
        self._spools.pop(key, None)
        self._resting.pop(key, None)
        self._suspects.discard(key)
        self._exited.discard(key)

    def nudge(self) -> None:
        self._news.set()

    def retry(self) -> None:
        """Try again at once where an upload waits: the coordinator has just answered."""
        self._resting.clear()
        self._reachable.set()

    async def any_spool(self) -> None:
        """Wait until there is a rank whose output is followed."""
        while not self._spools:
            self._followed.clear()
            await self._followed.wait()

    def spools(self) -> list[tuple[RankKey, RankSpool]]:
        return list(self._spools.items())

    def backlog(self) -> int:
        return sum(spool.backlog() for spool in self._spools.values())

    async def run(self) -> None:
        backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS, sleep=self._rest)
        while True:
            await self._wait_for_news()
            try:
                await self.finish()
                backoff.reset()
            except UploadFailedError as error:
                self._report_failure(error)
                await backoff.pause()

    async def _rest(self, seconds: float) -> None:
        self._reachable.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._reachable.wait()

    async def finish(self) -> None:
        """Send all there is now. Raises UploadFailedError."""
        while await self.upload_once():
            pass

    async def _wait_for_news(self) -> None:
        try:
            async with asyncio.timeout(until_beat(POLL_SECONDS, time.monotonic()) if self._spools else None):
                await self._news.wait()
        except TimeoutError:
            pass  # scripts do not nudge
        self._news.clear()

    async def upload_once(self) -> bool:
        """Send one batch; False when there is nothing to send."""
        async with self._in_flight:
            parcels = self._collect()
            if parcels:
                await self._send(parcels)
            self._finish_drained(parcels)
            return bool(parcels)

    def _collect(self) -> dict[RankKey, Parcel]:
        """Collect a parcel of each rank; events of all ranks first, so that one rank's flood of lines holds up no report of a checkpoint. Of each kind
        every rank has its share, and what the others leave of theirs."""
        now = time.time()
        keys = [key for key, spool in self._spools.items() if not self._rests(key) and spool.has_news(now)]
        if not keys:
            return {}
        random.shuffle(keys)  # so that among equals not always the same goes first
        keys.sort(key=lambda key: self._spools[key].unsent_bytes())
        parcels, ranks = {key: Parcel() for key in keys}, len(keys)
        budget = Budget(EVENT_RECORDS, MAX_BYTES - METRIC_BYTES - LOG_BYTES - ENVELOPE_BYTES, ranks)
        self._fill(parcels, lambda key, parcel: self._spools[key].collect_events(parcel, budget))
        metrics = Budget(MAX_RECORDS - LOG_RECORDS - EVENT_RECORDS + budget.records, budget.bytes + METRIC_BYTES, ranks)
        self._fill(parcels, lambda key, parcel: self._spools[key].collect_metrics(parcel, metrics))
        rest = Budget(metrics.records + LOG_RECORDS, metrics.bytes + LOG_BYTES, ranks)
        self._fill(parcels, lambda key, parcel: self._spools[key].collect_logs(parcel, rest, now, final=key in self._exited))
        filled = [(key, parcel) for key, parcel in parcels.items() if not parcel.is_empty() and not self._rests(key)]
        return dict(filled[:MAX_BATCHES])

    def _fill(self, parcels: Mapping[RankKey, Parcel], collect: Callable[[RankKey, Parcel], object]) -> None:
        for key, parcel in parcels.items():
            with self._isolated(key):
                if not self._rests(key):
                    collect(key, parcel)

    async def _send(self, parcels: dict[RankKey, Parcel]) -> None:
        """Send parcels. Ranks with a record that was refused lately go alone, so that the other ranks' records need not be sent again."""
        together = {key: parcel for key, parcel in parcels.items() if key not in self._suspects}
        for part in (together, *({key: parcel} for key, parcel in parcels.items() if key in self._suspects)):
            await self._delivery.deliver(part)
            self._suspects = self._suspects - part.keys() | self._delivery.blamed
            for key in part:
                if key in self._delivery.moved:
                    self._resting.pop(key, None)
                elif key not in self._delivery.blamed or key in self._delivery.stuck:
                    self._rest_rank(key, UploadFailedError(f"the coordinator acknowledged nothing of the news of {key}"))
        self._report_recovery()

    # -- a rank of which nothing can be sent now rests, and holds up no other

    @contextlib.contextmanager
    def _isolated(self, key: RankKey) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this rank alone
            self._rest_rank(key, error)

    def _rest_rank(self, key: RankKey, error: Exception) -> None:
        self._isolation.report(f"uploads of {key}", error)
        before = self._resting.get(key)
        backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS) if before is None else before.backoff
        self._resting[key] = RankRest(time.monotonic() + backoff.next_seconds(), backoff)

    def _rests(self, key: RankKey) -> bool:
        rest = self._resting.get(key)
        return rest is not None and time.monotonic() < rest.until

    def _finish_drained(self, parcels: dict[RankKey, Parcel]) -> None:
        """Report the ranks with nothing left to collect as drained, and save the marks now and then."""
        drained: list[RankKey] = []
        for key in self._exited & self._spools.keys() - parcels.keys():
            with self._isolated(key):
                if not self._rests(key) and self._is_empty(key):
                    drained.append(key)
        if drained or time.monotonic() - self._saved_at >= SAVE_SECONDS:
            self.save()
        for key in drained:
            self._report_set_aside(key)
            self._exited.discard(key)
            self._on_drained(key)

    def _report_set_aside(self, key: RankKey) -> None:
        if count := self._spools[key].set_aside:
            log.warning("%s: %d records could not be sent and were set aside", key, count)

    def _is_empty(self, key: RankKey) -> bool:
        """Whether nothing of a rank is left to send. Looked at again on its own: a full upload may have left the rank out, and a note of
        damage may be due."""
        parcel, budget, spool = Parcel(), Budget(1, MAX_BYTES), self._spools[key]
        spool.collect_events(parcel, budget)
        spool.collect_metrics(parcel, budget)
        complete = spool.collect_logs(parcel, budget, time.time(), final=True)
        return complete and parcel.is_empty() and not spool.report_damage()

    def save(self) -> None:
        """Save the marks. A failure costs sending something twice, nothing else."""
        self._saved_at = time.monotonic()
        for key, spool in self._spools.items():
            try:
                spool.save()
            except OSError as error:
                self._isolation.report(f"how far {key} is acknowledged cannot be saved", error)

    def _report_failure(self, error: UploadFailedError) -> None:
        if not self._failing:
            log.warning("%s; keeping everything on disk and trying again", error)
        self._failing = True

    def _report_recovery(self) -> None:
        if self._failing:
            log.info("uploads work again")
        self._failing = False
