"""An append-only file of checksummed records: what a rank produced, kept until the coordinator has it.

Each record is `length (4 bytes) | crc32 (4 bytes) | payload`, little-endian. The rank appends, its agent reads; both may
die at any byte. A torn tail is not an error: the reader stops before it, the next writer cuts it off.

The agent may give up the head of a spool. Then the file begins with a mark that says how many records are gone, and where the first one that is left
begins; what lies between is a hole in the file, and every other place in it stays where it is.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from paceline.monitoring.files import Appender, open_file

_HEADER = struct.Struct("<II")
HEADER_BYTES = _HEADER.size
_START = struct.Struct("<QQ")
START_BYTES = HEADER_BYTES + _START.size
#: Stands in the place of a record's length, which it is too large for: a version that does not know it reads no record there.
_HEAD_IS_GONE = (1 << 32) - 1
MAX_RECORD_BYTES = 1 << 20
#: So much of a spool is read at once as its records are counted, which may be gigabytes: more than any record has.
COUNTED_BYTES = 4 << 20


class SpoolRecordTooLargeError(ValueError):
    """A record over MAX_RECORD_BYTES: it could never be uploaded."""


def frame(payload: bytes) -> bytes:
    if not payload:
        raise ValueError("a record of 0 bytes; it would be taken for the end of the spool")
    if len(payload) > MAX_RECORD_BYTES:
        raise SpoolRecordTooLargeError(f"record of {len(payload)} bytes; the limit is {MAX_RECORD_BYTES}")
    return _HEADER.pack(len(payload), zlib.crc32(payload)) + payload


def parse(buffer: bytes) -> tuple[list[bytes], int]:
    """The whole, undamaged records at the start of `buffer`, and the number of bytes they take. No record is empty: zeros, which a power cut may leave
    at the end of a file, would be one in every HEADER_BYTES."""
    records: list[bytes] = []
    position = 0
    while len(buffer) - position >= HEADER_BYTES:
        length, checksum = _HEADER.unpack_from(buffer, position)
        payload = buffer[position + HEADER_BYTES : position + HEADER_BYTES + length]
        if not 0 < length <= MAX_RECORD_BYTES or len(payload) < length or zlib.crc32(payload) != checksum:
            break
        records.append(payload)
        position += HEADER_BYTES + length
    return records, position


class SpoolStart(NamedTuple):
    """The start of what is left of a spool: the first `records` records, which end at byte `offset`, are gone."""

    records: int = 0
    offset: int = 0

    def mark(self) -> bytes:
        """The first START_BYTES bytes of a spool that begins here."""
        content = _START.pack(*self)
        return _HEADER.pack(_HEAD_IS_GONE, zlib.crc32(content)) + content


def start_of(head: bytes, size: int) -> SpoolStart:
    """The start of the spool whose first bytes are `head`, in a file of `size` bytes. A mark that cannot be true counts for nothing."""
    if len(head) < START_BYTES or _HEADER.unpack_from(head) != (_HEAD_IS_GONE, zlib.crc32(head[HEADER_BYTES:START_BYTES])):
        return SpoolStart()
    start = SpoolStart(*_START.unpack_from(head, HEADER_BYTES))
    return start if start.records * HEADER_BYTES <= start.offset <= size else SpoolStart()


def read_start(descriptor: int) -> SpoolStart:
    """The start of an open spool. Raises OSError."""
    return start_of(os.pread(descriptor, START_BYTES, 0), os.fstat(descriptor).st_size)


class SpoolWriter:
    """Appends records; `flush` writes the group, all of it or nothing. After a failure, what was appended since the last flush is gone.

    Several processes may write one spool (a rank, and the reader of its event files): within `lock`, `records` counts all that were ever written."""

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
        if not self._end or size < self._end:
            self.records, self._end = start_of(self._file.read(0, START_BYTES), size)
        while self._end < size:
            found, intact = parse(self._file.read(self._end, COUNTED_BYTES))
            if not found:
                break
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
    """Reads what has been appended since the last call, never past a torn tail. Raises OSError where that is no plain file.

    `records` counts the records before `offset`, those among them that were gone before they could be read."""

    def __init__(self, path: Path, offset: int = 0, records: int = 0) -> None:
        self.path = path
        self.offset = offset
        self.records = records

    def read(self, max_bytes: int = 1 << 20) -> list[bytes]:
        try:
            with open_file(self.path) as file:
                found, consumed = parse(self._behind_what_is_gone(file.fileno(), max(max_bytes, MAX_RECORD_BYTES + HEADER_BYTES)))
        except FileNotFoundError:
            return []
        self.offset += consumed
        self.records += len(found)
        return found

    def _behind_what_is_gone(self, descriptor: int, most: int) -> bytes:
        """The next bytes. The mark is read after them: it is written before a hole is made, so bytes that it still counts were no hole."""
        while True:
            content = os.pread(descriptor, most, self.offset)
            start = read_start(descriptor)
            if start.offset <= self.offset:
                return content
            self.records, self.offset = start
