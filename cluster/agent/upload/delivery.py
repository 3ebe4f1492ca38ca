"""Delivers parcels to the coordinator. A refused parcel is narrowed down, by rank and then by record, until the one record at fault is
alone.

That record is set aside: a note with the reason takes its number, and everything else arrives.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import httpx
import msgspec

from paceline.cluster.agent.upload.parcel import Parcel
from paceline.cluster.agent.upload.spool import RankSpool
from paceline.cluster.protocol import UPLOAD_PATH, RankKey
from paceline.monitoring.points import Upload, UploadReply

MAX_BYTES = 4 << 20
UPLOAD_TIMEOUT_SECONDS = 30.0
#: For the client that uploads: it keeps its connection from one upload to the next. A coordinator keeps an idle one somewhat longer.
KEPT_CONNECTIONS = httpx.Limits(keepalive_expiry=60.0)
#: Answers about what an upload holds. Any other says something about the node, its credential, a proxy or the coordinator.
REFUSALS = frozenset({httpx.codes.BAD_REQUEST, httpx.codes.REQUEST_ENTITY_TOO_LARGE, httpx.codes.UNPROCESSABLE_ENTITY})
Parcels = Mapping[RankKey, Parcel]

log = logging.getLogger(__name__)


class UploadFailedError(Exception):
    """The coordinator is away, or did not take the upload: try again later."""


class UploadRefusedError(Exception):
    """The coordinator will never take this upload as it is."""


class Delivery:
    def __init__(self, http: httpx.AsyncClient, spools: Mapping[RankKey, RankSpool]) -> None:
        """Make a delivery. `spools`: those of all ranks; they are told about acknowledged and refused records."""
        self._http, self._spools = http, spools
        self.moved: set[RankKey] = set()  # ranks of which something was acknowledged in the last delivery
        self.blamed: set[RankKey] = set()  # ranks of which a record was refused in it
        self.stuck: set[RankKey] = set()  # of these, ranks of which not even the note for a record was taken

    async def deliver(self, parcels: Parcels) -> None:
        """Deliver parcels. Raises UploadFailedError; parts that were acknowledged before that stay acknowledged."""
        self.moved, self.blamed, self.stuck = set(), set(), set()
        if parcels:
            await self._send(parcels)

    async def _send(self, parcels: Parcels) -> None:
        try:
            reply = await post(self._http, self._encoded(parcels))
        except UploadRefusedError as refusal:
            await self._narrow_down(parcels, str(refusal))
        else:
            self._acknowledge(parcels, reply)

    def _encoded(self, parcels: Parcels) -> bytes:
        """The upload as JSON. Raises UploadRefusedError where it is too large: a record may take more bytes in the upload than in its
        spool."""
        upload = Upload(batches=[self._spools[key].batch(parcel) for key, parcel in parcels.items()])
        body = msgspec.json.encode(upload)
        if len(body) > MAX_BYTES:
            raise UploadRefusedError(f"{len(body)} bytes; the limit is {MAX_BYTES}")
        return body

    async def _narrow_down(self, parcels: Parcels, why: str) -> None:
        parts = halves(parcels)
        if not parts:
            await self._set_aside(parcels, why)
        for part in parts:
            if not part.keys() <= self.blamed:  # what follows a refused record of the same rank would leave a hole
                await self._send(part)

    def _acknowledge(self, parcels: Parcels, reply: UploadReply) -> None:
        for high in reply.acknowledged:
            key = RankKey(high.job_id, high.generation, high.rank)
            if key in parcels and key in self._spools and self._spools[key].acknowledge(parcels[key], high):
                self.moved.add(key)
                if reply.passes_gone:
                    self._spools[key].give_up()

    async def _set_aside(self, parcels: Parcels, why: str) -> None:
        """Set one record of one rank aside, unless the coordinator, or a proxy before it, refuses every upload."""
        await require_empty_upload(self._http)
        for key, parcel in parcels.items():
            for stream, item in parcel.items():
                self.blamed.add(key)
                if item.set_aside:
                    self.stuck.add(key)
                    log.error("the coordinator refuses the note for record %d of the %s of %s: %s", item.record.seq, stream, key, why)
                else:
                    self._spools[key].refuse(stream, item.record.seq, f"the coordinator refuses it: {why}")


async def post(http: httpx.AsyncClient, body: bytes) -> UploadReply:
    """Send one upload. Raises UploadFailedError, or UploadRefusedError."""
    try:
        response = await _send_again_if_closed(http, body)
        answer = f"upload answered {response.status_code}: {response.text[:500]}"
        if response.status_code in REFUSALS:
            raise UploadRefusedError(answer)
        if response.status_code != httpx.codes.OK:
            raise UploadFailedError(answer)
        return msgspec.json.decode(response.content, type=UploadReply)
    except (httpx.HTTPError, msgspec.DecodeError) as error:
        raise UploadFailedError(f"upload: {str(error) or type(error).__name__}") from error


async def _send_again_if_closed(http: httpx.AsyncClient, body: bytes) -> httpx.Response:
    """Send it, and once more where the connection was closed before an answer: the other end may close an idle connection just as it is used
    again, and an upload that arrives twice is stored once. Raises httpx.HTTPError."""
    try:
        return await _send_once(http, body)
    except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
        return await _send_once(http, body)


async def _send_once(http: httpx.AsyncClient, body: bytes) -> httpx.Response:
    return await http.post(UPLOAD_PATH, content=body, headers={"Content-Type": "application/json"}, timeout=UPLOAD_TIMEOUT_SECONDS)


async def require_empty_upload(http: httpx.AsyncClient) -> None:
    """Make sure that the coordinator, or a proxy before it, does not refuse every upload. Raises UploadFailedError where it does."""
    try:
        await post(http, msgspec.json.encode(Upload(batches=[])))
    except UploadRefusedError as error:
        raise UploadFailedError(f"even an empty upload is refused: {error}") from error


def halves(parcels: Parcels) -> list[Parcels]:
    """The parcels in two, by rank; those of a single rank by record; empty where there is only one record."""
    items = list(parcels.items())
    if len(items) > 1:
        middle = len(items) // 2
        return [dict(items[:middle]), dict(items[middle:])]
    return [{key: half} for key, parcel in items for half in parcel.halves()]
