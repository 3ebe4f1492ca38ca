"""The files that one rank left on disk and the coordinator has not stored: collected after the acknowledged marks, dropped by moving them.

The marks are the only state. They are saved now and then; losing the newest means sending something twice, which the
coordinator ignores. Cuts through lines are saved before they are sent: see `output`. A coordinator that holds less than it
once acknowledged (its database was lost, or restored from an older copy) is sent everything again that is left: of what is
acknowledged, so many bytes of each spool are kept, and what is gone is named with the first record behind it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from paceline.cluster.agent.folders import set_aside
from paceline.cluster.agent.upload.masking import NOTHING, SecretMask
from paceline.cluster.agent.upload.output import OutputReader
from paceline.cluster.agent.upload.output_gaps import DEFAULT_CAP_BYTES
from paceline.cluster.agent.upload.parcel import Budget, Parcel, Stream
from paceline.cluster.agent.upload.records import R, SpoolItem, note_of, read_items
from paceline.cluster.agent.upload.spool_head import DEFAULT_KEPT_BYTES, GIVEN_UP_BYTES, give_up_head, start_at
from paceline.cluster.protocol import RankKey
from paceline.monitoring.files import Appender, UnfitFileError, ends_at, read_file, write_durably
from paceline.monitoring.points import HighWater, LogLine, MetricRecord, RankBatch, RankEvent
from paceline.training.rank_folder import RankFolder

_GUESSED_RECORD_BYTES = 128
_MAX_MARKS_BYTES = 16 << 20
_Count = Annotated[int, msgspec.Meta(ge=0)]
SpoolStream = Literal["metrics", "events"]

log = logging.getLogger(__name__)


class SpoolMark(msgspec.Struct, frozen=True):
    """A mark: all records up to `seq`, which ends at byte `offset`, are acknowledged."""

    seq: _Count = 0
    offset: _Count = 0


class SpoolMarks(msgspec.Struct, frozen=True, kw_only=True):
    """The marks of all streams, as in `RankFolder.acknowledged`."""

    metrics: SpoolMark = SpoolMark()
    events: SpoolMark = SpoolMark()
    logs: SpoolMark = SpoolMark()
    cuts: tuple[int, ...] = ()  # in the output, after the mark
    damage_told: bool = False

    def behind(self, starts: Mapping[SpoolStream, SpoolMark]) -> SpoolMarks:
        """The marks, none of them before the start of its spool."""
        metrics, events = max(self.metrics, starts["metrics"], key=_offset), max(self.events, starts["events"], key=_offset)
        return msgspec.structs.replace(self, metrics=metrics, events=events)


class RankSpool:
    def __init__(
        self,
        folder: RankFolder,
        key: RankKey,
        output_cap: int = DEFAULT_CAP_BYTES,
        mask: Callable[[], SecretMask | None] = lambda: NOTHING,
        kept: int = DEFAULT_KEPT_BYTES,
        ranks: int = 1,
    ) -> None:
        """Make a spool of a rank's folder. `mask`: the secrets of its job; None: not known yet, and nothing is sent before. `kept`: how many bytes stay
        of the acknowledged points, and of the acknowledged events. `ranks`: how many its job has."""
        self.folder = folder
        self._events, self._metrics = folder.events, folder.metrics
        self._key, self._kept = key, kept
        self._starts: dict[SpoolStream, SpoolMark] = {"metrics": _start(folder.metrics), "events": _start(folder.events)}
        self._saved = _read_marks(folder.acknowledged)
        self.marks = self._saved.behind(self._starts)
        self.set_aside = 0  # records that the coordinator has got a note of instead
        self._mask = mask
        self._output = OutputReader(folder.output, set(self.marks.cuts), output_cap, ranks)
        self._refused: dict[Stream, dict[int, str]] = {"events": {}, "metrics": {}, "logs": {}}
        self._reported: set[str] = set()

    def look(self, now: float) -> None:
        """Note how much the rank has printed by now."""
        self._output.look(now)

    def trim(self) -> None:
        """Keep the rank's output below its cap."""
        self._output.trim(self.marks.logs.offset)

    def give_up(self) -> None:
        """Give up what is acknowledged beyond the bytes that are kept."""
        files: tuple[tuple[SpoolStream, Path, SpoolMark], ...] = (
            ("metrics", self._metrics, self.marks.metrics),
            ("events", self._events, self.marks.events),
        )
        for stream, path, mark in files:
            before = mark.offset - self._kept
            if before - self._starts[stream].offset < min(GIVEN_UP_BYTES, self._kept // 4):
                continue
            try:
                self._starts[stream] = SpoolMark(*give_up_head(path, before))
            except OSError as error:
                self._report_once(f"head of {stream}", f"{path} keeps more than {self._kept} bytes that are acknowledged: {error}")

    def has_news(self, now: float) -> bool:
        """Whether there may be something to collect. Each rank is asked this several times a second, mostly in vain."""
        behind = (self._events, self.marks.events), (self._metrics, self.marks.metrics)
        return not (self._output.ends_at(self.marks.logs.offset, now) and all(_has_no_news(path, mark) for path, mark in behind))

    def collect_events(self, parcel: Parcel, budget: Budget) -> None:
        parcel.events = budget.take(self._read("events", self._events, self.marks.events, RankEvent, budget.share))

    def collect_metrics(self, parcel: Parcel, budget: Budget) -> None:
        parcel.metrics = budget.take(self._read("metrics", self._metrics, self.marks.metrics, MetricRecord, budget.share))

    def _read(self, stream: Stream, path: Path, mark: SpoolMark, kind: type[R], most: int) -> list[SpoolItem[R]]:
        mask = self._mask()
        if mask is None or _has_no_news(path, mark):
            return []
        try:
            items = read_items(path, mark.seq, mark.offset, kind, self._refused[stream], most)
        except UnfitFileError as error:  # the rank has put something else in its place
            self._report_once(stream, f"{path} cannot be read: {error}")
            return []
        bad = next((item for item in items if item.set_aside), None)
        if bad is not None:
            self._report_once(stream, f"record {bad.record.seq} of {path} is set aside: {bad.set_aside}; the others go on")
        return [_masked(item, mask) for item in items] if mask else items

    def collect_logs(self, parcel: Parcel, budget: Budget, now: float, *, final: bool) -> bool:
        """Collect log lines. Returns False where lines must wait: a cut that cannot be remembered holds up the lines, and only these."""
        mark, mask = self.marks.logs, self._mask()
        if mask is None:
            return False
        lines = self._output.read(mark.offset, mark.seq, budget.share, now, final=final, mask=mask)
        if not self._output.cuts <= set(self._saved.cuts):
            try:
                self._remember(self.marks)
                self.save()
            except OSError as error:
                self._report_once("logs", f"lines of {self.folder.output} wait: where they are cut cannot be remembered: {error}")
                return False
        parcel.logs = budget.take([self._line_item(line, end) for line, end in lines])
        return True

    def _line_item(self, line: LogLine, end: int) -> SpoolItem[LogLine]:
        why = self._refused["logs"].get(line.seq, "")
        line = note_of(LogLine, line.seq, why, b"") if why else line
        return SpoolItem(line, end, len(msgspec.json.encode(line)), why)

    def refuse(self, stream: Stream, seq: int, why: str) -> None:
        """Note that the coordinator will never have this record: from now on a note takes its place."""
        self._refused[stream][seq] = why

    def _report_once(self, what: str, text: str) -> None:
        """Log a failure, once for each thing that fails."""
        if what not in self._reported:
            log.error("%s", text)
        self._reported.add(what)

    def report_damage(self) -> bool:
        """End the output of a rank that has exited and is otherwise drained with a note of its unreadable records, once."""
        files = ((self.folder.metrics, self.marks.metrics), (self.folder.events, self.marks.events))
        damaged = [(path, mark, rest) for path, mark in files if (rest := _bytes_behind(path, mark))]
        if self.marks.damage_told or not damaged:
            return False
        for path, mark, rest in damaged:
            text = f"{path} is damaged at byte {mark.offset}: the records in its last {rest} bytes, after number {mark.seq}, are lost"
            log.error("%s", text)
            with contextlib.suppress(UnfitFileError, IsADirectoryError), Appender(self.folder.output) as output:
                output.append(f"ERROR {text}\n".encode())
        self.marks = msgspec.structs.replace(self.marks, damage_told=True)
        with contextlib.suppress(OSError):  # reported where all marks are saved, which is done now and then
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
            metrics_gone=self._gone("metrics", parcel.metrics),
            events_gone=self._gone("events", parcel.events),
        )

    def _gone(self, stream: SpoolStream, items: Sequence[SpoolItem[R]]) -> int:
        """The number up to which nothing is left, where the items begin right behind it."""
        gone = self._starts[stream].seq
        return gone if items and items[0].record.seq == gone + 1 else 0

    def acknowledge(self, parcel: Parcel, high: HighWater) -> bool:
        """Move the marks. Returns whether any moved."""
        before = self.marks
        moved = msgspec.structs.replace(
            before,
            metrics=_advance(before.metrics, parcel.metrics, high.metrics, self._starts["metrics"]),
            events=_advance(before.events, parcel.events, high.events, self._starts["events"]),
            logs=_advance(before.logs, parcel.logs, high.logs, SpoolMark()),
        )
        self.set_aside += sum(bool(item.set_aside) and item.record.seq <= getattr(moved, stream).seq for stream, item in parcel.items())
        self._refused = {
            name: {seq: why for seq, why in each.items() if seq > getattr(moved, name).seq} for name, each in self._refused.items()
        }
        self._remember(moved)
        return self.marks != before

    def _remember(self, marks: SpoolMarks) -> None:
        self._output.cuts = {cut for cut in self._output.cuts if cut >= marks.logs.offset}
        self.marks = msgspec.structs.replace(marks, cuts=tuple(sorted(self._output.cuts)))

    def save(self) -> None:
        if self.marks != self._saved:
            write_durably(self.folder.acknowledged, msgspec.json.encode(self.marks))
            self._saved = self.marks

    def unsent_bytes(self) -> int:
        """The bytes that are not yet acknowledged."""
        return sum(_bytes_behind(path, mark) for path, mark in self._files())

    def _files(self) -> tuple[tuple[Path, SpoolMark], ...]:
        return (self.folder.metrics, self.marks.metrics), (self.folder.events, self.marks.events), (self.folder.output, self.marks.logs)

    def backlog(self) -> int:
        """Records not yet acknowledged: estimated from their bytes and the size of those before them."""
        return sum(_records_behind(path, mark) for path, mark in self._files())


def _masked(item: SpoolItem[R], mask: SecretMask) -> SpoolItem[R]:
    """A record without the secrets of its job: in names of metrics, in texts of events."""
    record = item.record
    if isinstance(record, MetricRecord):
        return item._replace(
            record=msgspec.structs.replace(record, values=mask.document(record.values), set_aside=mask.text(record.set_aside))
        )
    if isinstance(record, RankEvent):
        return item._replace(record=msgspec.structs.replace(record, data=mask.document(record.data)))
    return item


def _read_marks(path: Path) -> SpoolMarks:
    """The saved marks; none at all where the file is damaged: everything is sent again, and the coordinator drops what it has."""
    try:
        return msgspec.json.decode(read_file(path, _MAX_MARKS_BYTES), type=SpoolMarks)
    except FileNotFoundError:
        return SpoolMarks()
    except (OSError, ValueError) as error:
        set_aside(path, error)
        return SpoolMarks()


def _offset(mark: SpoolMark) -> int:
    return mark.offset


def _start(path: Path) -> SpoolMark:
    return SpoolMark(*start_at(path))


def _advance(mark: SpoolMark, sent: Sequence[SpoolItem[R]], acknowledged: int, start: SpoolMark) -> SpoolMark:
    """Move a mark; back to the start where the coordinator has forgotten something. Records that it still holds it takes only once."""
    if sent and acknowledged < mark.seq:
        if mark != start:
            log.warning("the coordinator holds %d records of the %d it had acknowledged; sending all again", acknowledged, mark.seq)
        return start
    for item in reversed(sent):
        if mark.seq < item.record.seq <= acknowledged:
            return SpoolMark(item.record.seq, item.end)
    return mark


def _has_no_news(path: Path, mark: SpoolMark) -> bool:
    """Whether nothing was written behind a mark: told without opening the file, since this is asked of each rank several times a second."""
    try:
        return ends_at(os.lstat(path), mark.offset)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _records_behind(path: Path, mark: SpoolMark) -> int:
    mean = mark.offset / mark.seq if mark.seq else _GUESSED_RECORD_BYTES
    return math.ceil(_bytes_behind(path, mark) / mean)


def _bytes_behind(path: Path, mark: SpoolMark) -> int:
    try:
        return max(0, path.stat().st_size - mark.offset)
    except OSError:
        return 0
