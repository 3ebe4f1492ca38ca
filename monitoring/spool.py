"""An append-only file of checksummed records: what a rank produced, kept until the coordinator has it.

Each record is `length (4 bytes) | crc32 (4 bytes) | payload`, little-endian. The rank appends, its agent reads; both may
die at any byte. A torn tail is not an error: the reader stops before it, the next writer cuts it off.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from paceline.monitoring.files import Appender, open_file

_HEADER = struct.Struct("<II")
HEADER_BYTES = _HEADER.size
MAX_RECORD_BYTES = 1 << 20


class SpoolRecordTooLargeError(ValueError):
    """A record over MAX_RECORD_BYTES: it could never be uploaded."""


def frame(payload: bytes) -> bytes:
    if len(payload) > MAX_RECORD_BYTES:
        raise SpoolRecordTooLargeError(f"record of {len(payload)} bytes; the limit is {MAX_RECORD_BYTES}")
    return _HEADER.pack(len(payload), zlib.crc32(payload)) + payload


def parse(buffer: bytes) -> tuple[list[bytes], int]:
    """The whole, undamaged records at the start of `buffer`, and the number of bytes they take."""
    records: list[bytes] = []
    position = 0
    while len(buffer) - position >= HEADER_BYTES:
        length, checksum = _HEADER.unpack_from(buffer, position)
        payload = buffer[position + HEADER_BYTES : position + HEADER_BYTES + length]
        if length > MAX_RECORD_BYTES or len(payload) < length or zlib.crc32(payload) != checksum:
            break
        records.append(payload)
        position += HEADER_BYTES + length
    return records, position


class SpoolWriter:
    """Appends records; `flush` writes the group, all of it or nothing. After a failure, what was appended since the last flush is gone.

    Several processes may write one spool (a rank, and the reader of its event files): within `lock`, `records` counts all that are there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = 0
        self._file = Appender(path)
        self._end = 0  # of the records that are counted
        self._group, self._grouped = bytearray(), 0
        self._is_locked = False
        with self.lock():
            pass

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the spool's exclusive lock within the block. Raises BlockingIOError if another process does not release it in time."""
        with self._file.lock():
            self._catch_up()
            self._is_locked = True
            try:
                yield
            finally:
                self._is_locked = False

    def _catch_up(self) -> None:
        """Count what others have written since; what one of them left unfinished as it died is cut off."""
        size = self._file.size
        if size == self._end:
            return
        if size < self._end:
            self.records = self._end = 0
        found, intact = parse(self._file.read(self._end))
        self.records, self._end = self.records + len(found), self._end + intact
        if self._end < size:
            self._file.cut(self._end)

    def append(self, payload: bytes) -> None:
        """Add a record to the group that the next `flush` writes. Raises SpoolRecordTooLargeError, keeping the records appended before."""
        self._group += frame(payload)
        self._grouped += 1

    def flush(self, *, durable: bool) -> None:
        group, grouped = bytes(self._group), self._grouped
        self.discard()
        if group:
            with contextlib.nullcontext() if self._is_locked else self.lock():
                self._file.append(group)
                self._end, self.records = self._end + len(group), self.records + grouped
        if durable:
            self._file.sync()

    def discard(self) -> None:
        """Drop the records appended since the last flush."""
        self._group, self._grouped = bytearray(), 0

    def close(self) -> None:
        self.flush(durable=True)
        self._file.close()


class SpoolReader:
    """Reads what has been appended since the last call, never past a torn tail. Raises OSError where that is no plain file."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset

    def read(self, max_bytes: int = 1 << 20) -> list[bytes]:
        try:
            with open_file(self.path) as file:
                file.seek(self.offset)
                records, consumed = parse(file.read(max(max_bytes, MAX_RECORD_BYTES + HEADER_BYTES)))
        except FileNotFoundError:
            return []
        self.offset += consumed
        return records
