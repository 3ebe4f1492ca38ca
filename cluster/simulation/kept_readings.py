"""The readings of a simulated node until the coordinator has them: the files of a real agent (`agent/upload/readings_spool.py`), in memory."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from paceline.cluster.agent.upload.readings_spool import ReadingsParcel
from paceline.monitoring.readings import NodeReadings, Reading, ReadingRecord, record_of

#: Records of one numbering, and how many numberings are kept while the coordinator is away: half an hour, 1.5 MB of a node with eight cards.
SPOOL_RECORDS, MOST_SPOOLS = 60, 6

_record = msgspec.json.Decoder(ReadingRecord)


@dataclass
class _Spool:
    number: int
    written: int = 0
    acknowledged: int = 0
    waiting: deque[bytes] = field(default_factory=deque)  # records, as JSON: a tenth of what the objects take


class KeptReadings:
    """A `ReadingsStore` in memory. Where it is full the oldest spool is given up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # it is written and sent by different threads
        self._spools: deque[_Spool] = deque(maxlen=MOST_SPOOLS)

    def append(self, readings: Sequence[Reading]) -> None:
        with self._lock:
            if not self._spools or self._spools[-1].written >= SPOOL_RECORDS:
                before = self._spools[-1].number if self._spools else 0
                self._spools.append(_Spool(max(int(time.time() * 1000), before + 1)))
            spool = self._spools[-1]
            spool.written += 1
            spool.waiting.append(msgspec.json.encode(record_of(spool.written, readings)))

    def parcel(self, most_bytes: int) -> ReadingsParcel | None:
        with self._lock:
            spool = next((spool for spool in self._spools if spool.waiting), None)
            if spool is None:
                return None
            records = [_record.decode(payload) for payload in _within(spool.waiting, most_bytes)]
        return ReadingsParcel(NodeReadings(spool=spool.number, records=records), [record.seq for record in records])

    def acknowledge(self, parcel: ReadingsParcel, seq: int) -> bool:
        if not any(record.seq == seq for record in parcel.readings.records):
            return False
        with self._lock:
            spool = next((spool for spool in self._spools if spool.number == parcel.readings.spool), None)
            while spool is not None and spool.acknowledged < seq:
                spool.waiting.popleft()
                spool.acknowledged += 1
        return True


def _within(payloads: Collection[bytes], most_bytes: int) -> Iterator[bytes]:
    """The first payloads, of so many bytes at most; at least one."""
    sizes = itertools.accumulate(map(len, payloads))
    for number, (payload, size) in enumerate(zip(payloads, sizes, strict=True)):
        if number and size > most_bytes:
            return
        yield payload
