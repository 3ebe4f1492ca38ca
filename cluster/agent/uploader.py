"""Sends what the ranks left on disk to the coordinator: one upload in flight, metrics before logs, again until acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable

import httpx
import msgspec

from cluster.agent.spawner_link import RankKey
from cluster.agent.spool import Budget, Parcel, RankSpool
from cluster.protocol import UPLOAD_PATH
from monitoring.points import Upload, UploadReply

MAX_RECORDS = 5_000
MAX_BYTES = 4 << 20
#: What logs may always take of an upload, so that neither starves the other.
LOG_RECORDS = 1_000
LOG_BYTES = 1 << 20
ENVELOPE_BYTES = 64 << 10
POLL_SECONDS = 0.2
SAVE_SECONDS = 1.0
UPLOAD_TIMEOUT_SECONDS = 30.0
FIRST_RETRY_SECONDS = 0.2
LONGEST_RETRY_SECONDS = 10.0

log = logging.getLogger(__name__)


class UploadFailedError(Exception):
    """The coordinator is away, or did not take it: try again later."""


class Uploader:
    """`on_drained` is called once for each rank that has exited and of which nothing is left to send."""

    def __init__(self, http: httpx.AsyncClient, on_drained: Callable[[RankKey], None]) -> None:
        self._http = http
        self._on_drained = on_drained
        self._spools: dict[RankKey, RankSpool] = {}
        self._exited: set[RankKey] = set()
        self._news = asyncio.Event()
        self._reachable = asyncio.Event()
        self._in_flight = asyncio.Lock()
        self._saved_at = 0.0
        self._failing = False

    def follow(self, key: RankKey, spool: RankSpool) -> None:
        self._spools[key] = spool

    def exited(self, key: RankKey) -> None:
        """The rank writes nothing more."""
        self._exited.add(key)
        self.nudge()

    def forget(self, key: RankKey) -> None:
        self._spools.pop(key, None)
        self._exited.discard(key)

    def nudge(self) -> None:
        self._news.set()

    def retry(self) -> None:
        """The coordinator has just been heard: whoever waits to try again need not."""
        self._reachable.set()

    def backlog(self) -> int:
        return sum(spool.backlog() for spool in self._spools.values())

    async def run(self) -> None:
        retry = FIRST_RETRY_SECONDS
        while True:
            await self._wait_for_news()
            try:
                await self.finish()
                retry = FIRST_RETRY_SECONDS
            except (UploadFailedError, OSError) as error:  # OSError: a full disk, where a cut line cannot be remembered
                self._report_failure(error)
                await self._rest(retry * random.uniform(0.5, 1.0))
                retry = min(2 * retry, LONGEST_RETRY_SECONDS)

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
            async with asyncio.timeout(POLL_SECONDS):
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
            self._settle(parcels)
            return bool(parcels)

    def _collect(self) -> dict[RankKey, Parcel]:
        budget = Budget(MAX_RECORDS - LOG_RECORDS, MAX_BYTES - LOG_BYTES - ENVELOPE_BYTES)
        now, keys = time.time(), list(self._spools)
        random.shuffle(keys)  # so that one rank's flood does not always go first
        parcels = {key: Parcel() for key in keys}
        for key, parcel in parcels.items():
            self._spools[key].collect_records(parcel, budget)
        budget = Budget(budget.records + LOG_RECORDS, budget.bytes + LOG_BYTES)
        for key, parcel in parcels.items():
            self._spools[key].collect_logs(parcel, budget, now, final=key in self._exited)
        return {key: parcel for key, parcel in parcels.items() if not parcel.is_empty()}

    async def _send(self, parcels: dict[RankKey, Parcel]) -> None:
        upload = Upload(batches=[self._spools[key].batch(parcel) for key, parcel in parcels.items()])
        reply = await self._post(msgspec.json.encode(upload))
        moved = False
        for high in reply.acknowledged:
            key = RankKey(high.job_id, high.generation, high.rank)
            if key in parcels and key in self._spools:
                moved |= self._spools[key].acknowledge(parcels[key], high)
        if not moved:
            raise UploadFailedError(f"the coordinator acknowledged nothing of {len(parcels)} ranks' news")
        self._report_recovery()

    async def _post(self, body: bytes) -> UploadReply:
        try:
            response = await self._http.post(
                UPLOAD_PATH, content=body, headers={"Content-Type": "application/json"}, timeout=UPLOAD_TIMEOUT_SECONDS
            )
            if response.status_code != httpx.codes.OK:
                raise UploadFailedError(f"upload answered {response.status_code}: {response.text[:500]}")
            return msgspec.json.decode(response.content, type=UploadReply)
        except (httpx.HTTPError, msgspec.DecodeError) as error:
            raise UploadFailedError(f"upload: {error or type(error).__name__}") from error

    def _settle(self, parcels: dict[RankKey, Parcel]) -> None:
        """Ranks of which nothing was left to collect are drained; marks are saved now and then."""
        drained = [key for key in self._exited if key in self._spools and key not in parcels and self._is_empty(key)]
        if drained or time.monotonic() - self._saved_at >= SAVE_SECONDS:
            self.save()
        for key in drained:
            self._exited.discard(key)
            self._on_drained(key)

    def _is_empty(self, key: RankKey) -> bool:
        """Looked at again on its own: a full upload may have left a rank out. A word about damage is still to be sent."""
        parcel, budget = Parcel(), Budget(1, MAX_BYTES)
        self._spools[key].collect_records(parcel, budget)
        self._spools[key].collect_logs(parcel, budget, time.time(), final=True)
        return parcel.is_empty() and not self._spools[key].tell_damage()

    def save(self) -> None:
        """Marks that cannot be saved cost sending something twice, nothing else."""
        self._saved_at = time.monotonic()
        for key, spool in self._spools.items():
            try:
                spool.save()
            except OSError as error:
                log.warning("cannot save how far %s is acknowledged: %s", key, error)

    def _report_failure(self, error: UploadFailedError | OSError) -> None:
        if not self._failing:
            log.warning("%s; keeping everything on disk and trying again", error)
        self._failing = True

    def _report_recovery(self) -> None:
        if self._failing:
            log.info("uploads work again")
        self._failing = False
