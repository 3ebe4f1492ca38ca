"""An append-only file of checksummed records: what a rank produced, kept until the coordinator has it.

Each record is `length (4 bytes) | crc32 (4 bytes) | payload`, little-endian. The rank appends, its agent reads; both may
die at any byte. A torn tail is not an error: the reader stops before it, the next writer cuts it off.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from monitoring.files import Appender, open_file

_HEADER = struct.Struct("<II")
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
    while len(buffer) - position >= _HEADER.size:
        length, checksum = _HEADER.unpack_from(buffer, position)
        payload = buffer[position + _HEADER.size : position + _HEADER.size + length]
        if length > MAX_RECORD_BYTES or len(payload) < length or zlib.crc32(payload) != checksum:
            break
        records.append(payload)
        position += _HEADER.size + length
    return records, position


class SpoolWriter:
    """Appends records; `flush` writes the group, all of it or nothing. After a failure, what was appended since the last flush is gone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = Appender(path)
        _, intact = parse(self._file.read())
        self._file.cut(intact)
        self._group = bytearray()

    def append(self, payload: bytes) -> None:
        """Raises SpoolRecordTooLargeError, and keeps what was appended before."""
        self._group += frame(payload)

    def flush(self, *, durable: bool) -> None:
        group, self._group = bytes(self._group), bytearray()
        self._file.append(group)
        if durable:
            self._file.sync()

    def discard(self) -> None:
        """Forget what was appended since the last flush."""
        self._group = bytearray()

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
                records, consumed = parse(file.read(max(max_bytes, MAX_RECORD_BYTES + _HEADER.size)))
        except FileNotFoundError:
            return []
        self.offset += consumed
        return records
