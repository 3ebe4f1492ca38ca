"""An append-only file of checksummed records: what a rank produced, kept until the coordinator has it.

Each record is `length (4 bytes) | crc32 (4 bytes) | payload`, little-endian. The rank appends, its agent reads; both may
die at any byte. A torn tail is not an error: the reader stops before it, the next writer cuts it off.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

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
    """Appends records; `flush` makes the group durable with one fsync."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open(path, "a+b", buffering=1 << 16)  # noqa: SIM115 - lives as long as the writer
        self._file.seek(0)
        _, intact = parse(self._file.read())
        self._file.truncate(intact)
        self._file.seek(intact)

    def append(self, payload: bytes) -> None:
        self._file.write(frame(payload))

    def flush(self, *, durable: bool) -> None:
        self._file.flush()
        if durable:
            os.fdatasync(self._file.fileno())

    def close(self) -> None:
        self.flush(durable=True)
        self._file.close()


class SpoolReader:
    """Reads what has been appended since the last call, never past a torn tail."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset

    def read(self, max_bytes: int = 1 << 20) -> list[bytes]:
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                records, consumed = parse(file.read(max(max_bytes, MAX_RECORD_BYTES + _HEADER.size)))
        except FileNotFoundError:
            return []
        self.offset += consumed
        return records
