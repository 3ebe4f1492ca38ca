"""Readings of this node on disk until the coordinator has them: files of records, the oldest sent first and deleted when it is acknowledged.

Each file numbers its records from 1, and its name is the number of the spool on the wire. While the coordinator is away the files take at
most MAX_BYTES; beyond that the oldest readings are given up, which is told.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from paceline.cluster.agent.folders import set_aside
from paceline.monitoring.files import UnfitFileError, open_file, read_file, write_durably
from paceline.monitoring.readings import NodeReadings, Reading, ReadingRecord, record_of
from paceline.monitoring.spool import HEADER_BYTES, SpoolWriter, parse

#: A file that is larger is followed by a new one.
FILE_BYTES = 1 << 20
#: The most of all files together: about a day of eight cards.
MAX_BYTES = 64 << 20
_SUFFIX = ".spool"
_MAX_MARK_BYTES = 4096

log = logging.getLogger(__name__)
_record = msgspec.json.Decoder(ReadingRecord)


class ReadingsMark(msgspec.Struct, frozen=True):
    """All records of `spool` up to `seq`, which ends at byte `offset`, are acknowledged."""

    spool: int = 0
    seq: int = 0
    offset: int = 0


@dataclass(frozen=True)
class ReadingsParcel:
    """Records of one file, and where in it each of them ends."""

    readings: NodeReadings
    ends: Sequence[int]

    def first(self, count: int) -> ReadingsParcel:
        """Return a parcel of the first records alone."""
        return ReadingsParcel(NodeReadings(spool=self.readings.spool, records=self.readings.records[:count]), self.ends[:count])


class ReadingsStore(Protocol):
    """Readings that wait for the coordinator: on the disk of a node, or in memory where nodes are simulated. Its methods are called from any thread."""

    def append(self, readings: Sequence[Reading]) -> None:
        """Add a record of these readings. Raises OSError where nothing more can be kept."""

    def parcel(self, most_bytes: int) -> ReadingsParcel | None:
        """The oldest records that are not acknowledged, all of one spool; None: there are none."""

    def acknowledge(self, parcel: ReadingsParcel, seq: int) -> bool:
        """Forget the parcel's records up to `seq`. Returns whether that is one of them."""


class ReadingsSpool:
    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._mark_path = folder / "acknowledged.json"
        self._mark = _read_mark(self._mark_path)
        self._writer: SpoolWriter | None = None
        self._files = threading.Lock()  # held while a file is begun or dropped: one that is just begun has no record either
        self._told_full = False

    # -- writing

    def append(self, readings: Sequence[Reading]) -> None:
        """Write a record of these readings. Raises OSError where the disk takes nothing."""
        with self._files:
            writer = self._writer
            if writer is None or not _has_room(writer.path):
                writer = self._begin_file()
            writer.append(msgspec.json.encode(record_of(writer.records + 1, readings)))
            writer.flush(durable=False)

    def _begin_file(self) -> SpoolWriter:
        self.close()
        self._make_room()
        number = max([int(time.time() * 1000), self._mark.spool + 1, *(number + 1 for number in self._numbers())])
        self._writer = SpoolWriter(self._path(number))
        return self._writer

    def _make_room(self) -> None:
        sizes = {number: self._path(number).stat().st_size for number in self._numbers()}
        total, given_up = sum(sizes.values()), 0
        for number in sorted(sizes):
            if total <= self._max_bytes - FILE_BYTES:
                break
            self._path(number).unlink(missing_ok=True)
            total, given_up = total - sizes[number], given_up + 1
        if given_up and not self._told_full:
            log.warning("readings that wait for the coordinator take over %d MiB: the oldest are given up", self._max_bytes >> 20)
        self._told_full = bool(given_up)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    # -- sending

    def parcel(self, most_bytes: int) -> ReadingsParcel | None:
        """The oldest records that are not acknowledged, from one file; None: there are none."""
        with self._files:
            for number in self._numbers():
                mark = self._mark if self._mark.spool == number else ReadingsMark(number)
                found = self._read(mark, most_bytes)
                if found is not None:
                    return found
                if self._writer is None or self._path(number) != self._writer.path:
                    self._drop(number, mark)
            return None

    def _read(self, mark: ReadingsMark, most_bytes: int) -> ReadingsParcel | None:
        payloads = self._payloads(mark, most_bytes)
        records, ends, end = [], [], mark.offset
        for seq, payload in enumerate(payloads, start=mark.seq + 1):
            end += HEADER_BYTES + len(payload)
            records.append(msgspec.structs.replace(_record.decode(payload), seq=seq))
            ends.append(end)
        return ReadingsParcel(NodeReadings(spool=mark.spool, records=records), ends) if records else None

    def _payloads(self, mark: ReadingsMark, most_bytes: int) -> list[bytes]:
        try:
            with open_file(self._path(mark.spool)) as file:
                file.seek(mark.offset)
                return parse(file.read(most_bytes))[0]
        except FileNotFoundError:
            return []  # given up meanwhile

    def _drop(self, number: int, mark: ReadingsMark) -> None:
        """Delete a file with nothing left to send. What is behind its last whole record was being written as an agent died."""
        with contextlib.suppress(FileNotFoundError):
            rest = self._path(number).stat().st_size - mark.offset
            if rest > 0:
                log.warning("%s ends with %d bytes that are no whole record; they are dropped", self._path(number), rest)
            self._path(number).unlink()

    def acknowledge(self, parcel: ReadingsParcel, seq: int) -> bool:
        """Move the mark over the records up to `seq`. Returns whether it moved."""
        for record, end in zip(reversed(parcel.readings.records), reversed(parcel.ends), strict=True):
            if record.seq <= seq:
                self._mark = ReadingsMark(parcel.readings.spool, record.seq, end)
                write_durably(self._mark_path, msgspec.json.encode(self._mark))
                return True
        return False

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob(f"*{_SUFFIX}") if path.stem.isdecimal())

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}{_SUFFIX}"


def _has_room(path: Path) -> bool:
    """Whether more may be written to a file. To one that was removed nothing more may."""
    try:
        return path.stat().st_size < FILE_BYTES
    except FileNotFoundError:
        return False


def _read_mark(path: Path) -> ReadingsMark:
    """The saved mark. Where it is damaged everything is sent again, and the coordinator drops what it has."""
    try:
        return msgspec.json.decode(read_file(path, _MAX_MARK_BYTES), type=ReadingsMark)
    except FileNotFoundError:
        return ReadingsMark()
    except (UnfitFileError, OSError, ValueError) as error:
        set_aside(path, error)
        return ReadingsMark()
