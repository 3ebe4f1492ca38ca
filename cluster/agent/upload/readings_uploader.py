"""Sends the node's readings to the coordinator, apart from what its ranks leave: neither holds up the other."""

from __future__ import annotations

import asyncio
import logging

import httpx
import msgspec

from paceline.cluster.agent.upload.delivery import UploadFailedError, UploadRefusedError, post, require_empty_upload
from paceline.cluster.agent.upload.readings_spool import ReadingsParcel, ReadingsStore
from paceline.monitoring.backoff import Backoff
from paceline.monitoring.points import Upload, UploadReply
from paceline.monitoring.spool import MAX_RECORD_BYTES

#: The most of an upload's records; one record always fits.
PARCEL_BYTES = 2 * MAX_RECORD_BYTES
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1.0, 10.0

log = logging.getLogger(__name__)


class ReadingsUploader:
    def __init__(self, http: httpx.AsyncClient, spool: ReadingsStore) -> None:
        self._http, self._spool = http, spool
        self._news = asyncio.Event()
        self._most: int | None = None  # records of the next upload, after a refusal
        self._failing = False

    def nudge(self) -> None:
        """There is a new record."""
        self._news.set()

    async def run(self) -> None:
        backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        self._news.set()  # what an agent before this one has left
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self.finish()
                backoff.reset()
            except UploadFailedError as error:
                if not self._failing:
                    log.warning("readings wait on this node: %s", error)
                self._failing = True
                self._news.set()
                await backoff.pause()

    async def finish(self) -> None:
        """Send all there is now. Raises UploadFailedError."""
        while (parcel := await asyncio.to_thread(self._spool.parcel, PARCEL_BYTES)) is not None:
            await self._send(parcel if self._most is None else parcel.first(self._most))

    async def _send(self, parcel: ReadingsParcel) -> None:
        try:
            reply = await post(self._http, msgspec.json.encode(Upload(batches=[], readings=parcel.readings)))
        except UploadRefusedError as refusal:
            await self._narrow_down(parcel, refusal)
        else:
            await self._acknowledge(parcel, reply)

    async def _acknowledge(self, parcel: ReadingsParcel, reply: UploadReply) -> None:
        if reply.readings is None:
            raise UploadFailedError("the coordinator is of a version that keeps no readings")
        if not await asyncio.to_thread(self._spool.acknowledge, parcel, reply.readings):
            raise UploadFailedError(f"the coordinator acknowledged readings up to {reply.readings}, which were not sent")
        self._most = None
        if self._failing:
            log.info("readings are stored again")
        self._failing = False

    async def _narrow_down(self, parcel: ReadingsParcel, refusal: UploadRefusedError) -> None:
        """Send fewer records next; a single one that is refused, by a coordinator that takes empty uploads, is passed over."""
        count = len(parcel.readings.records)
        if count > 1:
            self._most = count // 2
            return
        await require_empty_upload(self._http)
        log.error("readings of %d s are dropped: %s", len(parcel.readings.records[0].times), refusal)
        await asyncio.to_thread(self._spool.acknowledge, parcel, parcel.readings.records[0].seq)
        self._most = None
