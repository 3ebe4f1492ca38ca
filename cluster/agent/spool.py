"""What one rank left on disk and the coordinator has not yet: collected after the acknowledged marks, dropped by moving them.

The marks are the only state. They are saved now and then; losing the newest means sending something twice, which the
coordinator ignores. Cuts through lines are saved before they are sent: see `output`. A coordinator that holds less than it
once acknowledged (its database was lost, or restored from an older copy) is sent everything again.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import msgspec

from cluster.agent.output import OutputReader
from cluster.agent.spawner_link import RankKey
from monitoring.files import write_durably
from monitoring.points import HighWater, LogLine, MetricRecord, RankBatch, RankEvent
from monitoring.spool import SpoolReader, frame
from training.link import RankFolder

_FRAME_BYTES = len(frame(b""))
_GUESSED_RECORD_BYTES = 128

log = logging.getLogger(__name__)


class Mark(msgspec.Struct, frozen=True):
    """Everything up to `seq`, which ends at byte `offset`, is acknowledged."""

    seq: int = 0
    offset: int = 0


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """`RankFolder.acknowledged`."""

    metrics: Mark = Mark()
    events: Mark = Mark()
    logs: Mark = Mark()
    cuts: tuple[int, ...] = ()  # in the output, after the mark
    damage_told: bool = False


R = TypeVar("R", MetricRecord, RankEvent, LogLine)


class Item(NamedTuple, Generic[R]):
    record: R
    end: int  # offset in its file
    size: int  # in the upload


class Budget:
    """What still fits in an upload."""

    def __init__(self, records: int, bytes_: int) -> None:
        self.records = records
        self.bytes = bytes_

    def take(self, items: Sequence[Item[R]]) -> list[Item[R]]:
        """The leading items that fit."""
        taken: list[Item[R]] = []
        for item in items:
            if self.records < 1 or self.bytes < item.size:
                break
            self.records -= 1
            self.bytes -= item.size
            taken.append(item)
        return taken


class Parcel:
    """What one upload carries for one rank."""

    def __init__(self) -> None:
        self.metrics: list[Item[MetricRecord]] = []
        self.events: list[Item[RankEvent]] = []
        self.logs: list[Item[LogLine]] = []

    def is_empty(self) -> bool:
        return not (self.metrics or self.events or self.logs)


class RankSpool:
    def __init__(self, folder: RankFolder, key: RankKey) -> None:
        self.folder = folder
        self._key = key
        self.marks = _read_marks(folder.acknowledged)
        self._saved = self.marks
        self._output = OutputReader(folder.output, set(self.marks.cuts))

    def collect_records(self, parcel: Parcel, budget: Budget) -> None:
        parcel.metrics = budget.take(_read_spool(self.folder.metrics, self.marks.metrics, MetricRecord))
        parcel.events = budget.take(_read_spool(self.folder.events, self.marks.events, RankEvent))

    def collect_logs(self, parcel: Parcel, budget: Budget, now: float, *, final: bool) -> None:
        mark = self.marks.logs
        lines = self._output.read(mark.offset, mark.seq, budget.records, now, final=final)
        parcel.logs = budget.take([Item(line, end, len(msgspec.json.encode(line))) for line, end in lines])
        if self._output.cuts != set(self.marks.cuts):
            self._remember(self.marks)
            self.save()

    def tell_damage(self) -> bool:
        """Of a rank that has exited and is otherwise drained: end its output with what cannot be read of its records, once."""
        files = ((self.folder.metrics, self.marks.metrics), (self.folder.events, self.marks.events))
        damaged = [(path, mark, rest) for path, mark in files if (rest := _bytes_behind(path, mark))]
        if self.marks.damage_told or not damaged:
            return False
        for path, mark, rest in damaged:
            text = f"{path} is damaged at byte {mark.offset}: the records in its last {rest} bytes, after number {mark.seq}, are lost"
            log.error("%s", text)
            with open(self.folder.output, "a") as output:
                output.write(f"ERROR {text}\n")
        self.marks = msgspec.structs.replace(self.marks, damage_told=True)
        self.save()
        return True

    def batch(self, parcel: Parcel) -> RankBatch:
        return RankBatch(
            job_id=self._key.job_id,
            generation=self._key.generation,
            rank=self._key.rank,
            metrics=[item.record for item in parcel.metrics],
            logs=[item.record for item in parcel.logs],
            events=[item.record for item in parcel.events],
        )

    def acknowledge(self, parcel: Parcel, high: HighWater) -> bool:
        """Move the marks; whether any moved."""
        before = self.marks
        moved = msgspec.structs.replace(
            before,
            metrics=_advance(before.metrics, parcel.metrics, high.metrics),
            events=_advance(before.events, parcel.events, high.events),
            logs=_advance(before.logs, parcel.logs, high.logs),
        )
        self._remember(moved)
        return self.marks != before

    def _remember(self, marks: Marks) -> None:
        self._output.cuts = {cut for cut in self._output.cuts if cut >= marks.logs.offset}
        self.marks = msgspec.structs.replace(marks, cuts=tuple(sorted(self._output.cuts)))

    def save(self) -> None:
        if self.marks != self._saved:
            write_durably(self.folder.acknowledged, msgspec.json.encode(self.marks))
            self._saved = self.marks

    def backlog(self) -> int:
        """Records not yet acknowledged: estimated from their bytes and the size of those before them."""
        files = ((self.folder.metrics, self.marks.metrics), (self.folder.events, self.marks.events), (self.folder.output, self.marks.logs))
        return sum(_records_behind(path, mark) for path, mark in files)


def _read_marks(path: Path) -> Marks:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Marks)
    except FileNotFoundError:
        return Marks()


def _read_spool(path: Path, mark: Mark, kind: type[R]) -> list[Item[R]]:
    items: list[Item[R]] = []
    end = mark.offset
    for payload in SpoolReader(path, mark.offset).read():
        end += _FRAME_BYTES + len(payload)
        items.append(Item(msgspec.json.decode(payload, type=kind), end, len(payload)))
    return items


def _advance(mark: Mark, sent: Sequence[Item[R]], acknowledged: int) -> Mark:
    """Back to the start where the coordinator has forgotten something; of what it still holds it takes nothing twice."""
    if sent and acknowledged < mark.seq:
        log.warning("the coordinator holds %d records of the %d it had acknowledged; sending all again", acknowledged, mark.seq)
        return Mark()
    for item in reversed(sent):
        if mark.seq < item.record.seq <= acknowledged:
            return Mark(item.record.seq, item.end)
    return mark


def _records_behind(path: Path, mark: Mark) -> int:
    mean = mark.offset / mark.seq if mark.seq else _GUESSED_RECORD_BYTES
    return math.ceil(_bytes_behind(path, mark) / mean)


def _bytes_behind(path: Path, mark: Mark) -> int:
    try:
        return max(0, path.stat().st_size - mark.offset)
    except FileNotFoundError:
        return 0
