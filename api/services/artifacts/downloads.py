"""Downloads of files that jobs have left: a part of one, or all of a folder as a zip that is made while it is sent."""

from __future__ import annotations

import re
import zipfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from paceline.api.core.context import Services
from paceline.api.errors import ProblemError
from paceline.db.models.artifacts import ArtifactRow
from paceline.db.repositories import artifact_files
from paceline.db.repositories import artifacts as rows
from paceline.monitoring.artifacts import CHUNK_BYTES
from paceline.monitoring.zip_stream import ZipStream

PAGE = 200
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
#: A zip has no place for times outside of these.
FIRST_TIME, LAST_TIME = datetime(1980, 1, 1, tzinfo=UTC), datetime(2107, 12, 31, tzinfo=UTC)


@dataclass(frozen=True)
class ByteRange:
    """A part of a content of `size` bytes: from `start` up to, and without, `end`."""

    start: int
    end: int
    size: int

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def is_part(self) -> bool:
        return self.length != self.size

    @property
    def headers(self) -> dict[str, str]:
        said = {"Accept-Ranges": "bytes", "Content-Length": str(self.length)}
        return said | ({"Content-Range": f"bytes {self.start}-{self.end - 1}/{self.size}"} if self.is_part else {})


def range_of(header: str | None, size: int) -> ByteRange:
    """The part that a Range header asks for (RFC 9110, section 14); all where it asks for none, or for something that is not served:
    other units, several parts. Raises range_not_satisfiable for a part behind the end."""
    everything = ByteRange(0, size, size)
    asked = _RANGE.fullmatch((header or "").replace(" ", ""))
    if asked is None or asked.groups() == ("", ""):
        return everything
    first, last = asked.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return everything
    if start >= end:
        headers = {"Content-Range": f"bytes */{size}"}
        raise ProblemError("range_not_satisfiable", f"{header!r} lies behind the end: there are {size:,} bytes", headers=headers)
    return ByteRange(start, end, size)


async def part(services: Services, artifact_id: str, wanted: ByteRange) -> AsyncIterator[bytes]:
    """A part of an artifact, chunk by chunk, each in a session of its own. Raises where a newer version takes its place meanwhile, so that
    the download breaks off."""
    position = wanted.start
    while position < wanted.end:
        number = position // CHUNK_BYTES
        async with services.metrics.read() as points:
            data = await rows.chunk(points, artifact_id, number)
        if not data:
            raise ContentGoneError(artifact_id)
        begin = number * CHUNK_BYTES
        piece = data[position - begin : wanted.end - begin]
        yield piece
        position += len(piece)


class ContentGoneError(Exception):
    """The contents of an artifact were deleted, or replaced by a newer version, while they were read."""


async def archive(services: Services, job_id: str, folder: str) -> AsyncIterator[bytes]:
    """A zip of all files in a folder, with their paths in the job. Nothing is compressed: what takes room is compressed already."""
    sink = ZipStream()
    with zipfile.ZipFile(sink, "w") as packed:
        after: str | None = None
        while True:
            async with services.control.read() as session:
                found = await artifact_files.below(session, job_id, folder, after, PAGE)
            for row in found:
                async for piece in _entry(services, packed, sink, row):
                    yield piece
            if len(found) < PAGE:
                break
            after = found[-1].path
    yield sink.take()


async def _entry(services: Services, packed: zipfile.ZipFile, sink: ZipStream, row: ArtifactRow) -> AsyncIterator[bytes]:
    with packed.open(zip_info(row), "w", force_zip64=True) as entry:
        async for data in part(services, row.id, ByteRange(0, row.bytes, row.bytes)):
            entry.write(data)
            yield sink.take()
    yield sink.take()


def zip_info(row: ArtifactRow) -> zipfile.ZipInfo:
    changed = datetime.fromtimestamp((row.changed_ns or 0) / 1e9, UTC)
    moment = min(max(changed, FIRST_TIME), LAST_TIME)
    return zipfile.ZipInfo(row.path or "", date_time=moment.timetuple()[:6])


def headers_of(row: ArtifactRow) -> dict[str, str]:
    """The headers of a file's content: it is saved under its own name, never shown as a page, and asked for again each time."""
    name = (row.path or row.name).rpartition("/")[2]
    return attachment(name) | {"ETag": f'"{row.sha256}"', "Cache-Control": "private, no-cache"}


def attachment(name: str) -> dict[str, str]:
    """The header of a download with any name (RFC 6266): ASCII for old clients, and all of it."""
    plain = "".join(sign if sign.isascii() and sign.isprintable() and sign not in '"\\%' else "_" for sign in name)
    return {"Content-Disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"}
