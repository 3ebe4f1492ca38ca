"""A rank's output as log lines: the same numbers for the same bytes, however often and by whichever agent it is read.

A line ends at its newline, at MAX_LINE_BYTES, or where a pause in the middle of it had its first part sent. Only the last kind depends
on the time of reading: such a *cut* is remembered (durably, before it is sent). The part of a flood that is left out is a *gap*: see
`output_gaps`.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from paceline.cluster.agent.upload.masking import NOTHING, SecretMask, shown
from paceline.cluster.agent.upload.output_gaps import (
    DEFAULT_CAP_BYTES,
    FINAL_BYTES,
    RESUME_BYTES,
    Allowance,
    Gap,
    Gaps,
    Reason,
    line_start,
    punch_hole,
)
from paceline.cluster.agent.upload.print_times import PrintTimes
from paceline.monitoring.files import ends_at, open_file
from paceline.monitoring.points import LogLine

MAX_LINE_BYTES = 16 << 10
PARTIAL_LINE_SECONDS = 1.0
_CHUNK_BYTES = 1 << 20
_TRIM_BYTES = 8 << 20  # so much is given back to the file system at once
_CUT_NOTE = " … (line over 16 KiB, continued)"
_NAMES = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"
_DATE = r"(?:\d{2,4}[-/]\d\d[-/]\d{2,4}[T ])?"
#: What a line says of its level: a word that it begins with, also behind torch's `[rank1]: `; an exception, or a warning of Python's with its
#: place; the word that `logging` puts behind date and time; the letter before them, as glog, torch's C++ code and tornado have it.
_LEVEL = re.compile(
    rf"(?:\[rank\d+\]: ?)?(?:[\[\s]*({_NAMES}|Traceback \(most recent call last\))"
    rf"|((?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception))(?::|$)"
    rf"|(?:\S+:\d+: )?(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(Warning): "
    rf"|[\[(]?{_DATE}\d\d:\d\d\S*[\])]?\s.{{0,80}}?(?<![\w.])({_NAMES})(?![\w.])"
    rf"|\[?(?:rank\d+\]:\[)?([DIWEF])\d{{4}} \d\d:\d\d:\d\d"
    rf"|\[([DIWEF]) [^\]]+\])"
)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_LEVELS: dict[str, Literal["debug", "info", "warning"]] = {
    **dict.fromkeys(("DEBUG", "D"), "debug"),
    **dict.fromkeys(("INFO", "I"), "info"),
    **dict.fromkeys(("WARNING", "Warning", "WARN", "W"), "warning"),
}

log = logging.getLogger(__name__)


class OutputPiece(NamedTuple):
    """One line's bytes; `end` is the offset of what follows. `continues`: its beginning was sent as a line before."""

    content: bytes
    end: int
    too_long: bool = False
    continues: bool = False


class ReadLine(NamedTuple):
    line: LogLine
    end: int


class OutputReader:
    """Reads lines that follow a mark. `cuts` are offsets at which a line was once ended early; `cap`: how many bytes the file may take; `ranks`:
    how many the job has, which share what is sent of it."""

    def __init__(self, path: Path, cuts: set[int], cap: int = DEFAULT_CAP_BYTES, ranks: int = 1) -> None:
        self.path = path
        self.cuts = cuts
        self._cap = cap
        self._gaps = Gaps(path.with_suffix(".gaps"))
        self._times = PrintTimes(path)
        self._allowance = Allowance(ranks)
        self._read_to = 0  # lines up to here have a number
        self._window_end = 0  # of a flood, lines up to here are sent before the next gap
        self._punched_to = self._trimmed_to = cap // 2
        self._troubles: set[str] = set()
        self._waiting: tuple[int, float] | None = None  # offset of a partial line, and when it was first seen

    def look(self, now: float) -> None:
        """Note how much is printed by now: the more often, the better the times of lines."""
        self._times.look(now)

    def ends_at(self, offset: int, now: float) -> bool:
        """Look, and return whether nothing is printed behind `offset`: told without opening the file."""
        found = ends_at(self._times.look(now), offset)
        if found:
            self._allowance.left(offset, 0, now)
        return found

    def read(self, offset: int, seq: int, limit: int, now: float, *, final: bool, mask: SecretMask = NOTHING) -> list[ReadLine]:
        """Read at most `limit` lines after `offset`, numbered from `seq` + 1. `final`: nothing more will be written. `mask`: covers secrets."""
        self._times.forget_before(offset)
        if self.ends_at(offset, now) or limit < 1 or not self._may_send(offset, now, final=final):
            return []
        gap = next(iter(self._gaps.behind(offset)), None)
        if gap is not None and gap.start <= offset:
            pieces = [OutputPiece(gap.note(self._cap, self._allowance.rate), gap.end)]
        else:
            pieces = self._pieces(offset, gap, limit, now, final=final, mask=mask)
        for piece in pieces:
            self._allowance.spend(len(piece.content), piece.end)
            self._read_to = max(self._read_to, piece.end)
        lines = [
            ReadLine(log_line(seq + number, piece, self._times.by_when(piece.end, now)), piece.end)
            for number, piece in enumerate(pieces, start=1)
        ]
        return [ReadLine(msgspec.structs.replace(line, text=shown(line.text)), end) for line, end in lines] if mask else lines

    def _pieces(
        self, offset: int, gap: Gap | None, limit: int, now: float, *, final: bool, mask: SecretMask = NOTHING
    ) -> list[OutputPiece]:
        """The lines up to the next gap, which ends a line wherever it begins."""
        size = _CHUNK_BYTES if gap is None else min(_CHUNK_BYTES, gap.start - offset)
        before = min(offset, mask.longest)  # a secret may have begun in what was sent before
        buffer = self._chunk(offset - before, size + before)
        buffer = mask.cover(buffer, start=before) if mask else buffer[before:]
        pieces, position = split(buffer, offset, self.cuts, limit)
        rest = len(buffer) - position
        before_gap = gap is not None and offset + len(buffer) == gap.start
        at_end = (before_gap or len(buffer) < size) and len(pieces) < limit
        if at_end and 0 < rest <= MAX_LINE_BYTES and (before_gap or self._is_due(offset + position, now, final=final)):
            end = offset + len(buffer)
            if not before_gap:
                self.cuts.add(end)
            pieces.append(OutputPiece(buffer[position:], end, continues=offset + position in self.cuts))
        return pieces

    # -- floods

    def _may_send(self, offset: int, now: float, *, final: bool) -> bool:
        """Make a gap where the rank has printed more than may be sent. Returns False where nothing may be sent for some time."""
        size = self._size()
        unsent = size - offset - sum(gap.end - max(gap.start, offset) for gap in self._gaps.behind(offset))
        left = self._allowance.left(offset, unsent, now)
        if unsent <= left or (offset < self._window_end and left > 0):
            return True
        if not final and left < RESUME_BYTES:
            return False
        self._window_end = size
        begin, head, tail = max(offset, self._read_to), max(left // 2, 0), max(left // 2, FINAL_BYTES)
        return self._leave_out(begin + head, size - tail, "rate") is not None or final

    def trim(self, offset: int) -> None:
        """Keep the file below its cap: its first and its last half. `offset`: what is before it is acknowledged.

        Lines that are under way (numbered, not acknowledged) stay until the next time."""
        head, tail = self._cap // 2, self._size() - self._cap // 2
        if tail - self._trimmed_to < min(_TRIM_BYTES, self._cap // 4):
            return
        done = min(max(offset, head), tail)
        sent, unsent = self._leave_out(self._punched_to, done, "cap"), self._leave_out(max(done, self._read_to), tail, "cap")
        if sent is None or unsent is None:
            return
        self._trimmed_to = tail
        try:
            punch_hole(self.path, sent, done)
            punch_hole(self.path, unsent, tail)
            self._punched_to = done
        except OSError as error:
            self._report_once(f"the output of a rank takes more than its cap of {self._cap} bytes, and cannot be cut: {error}")

    def _leave_out(self, start: int, end: int, reason: Reason) -> int | None:
        """The start of a line from where on bytes before `end` need not be kept. None: the gap cannot be remembered, so they must be
        kept."""
        if end <= start:
            return end
        try:
            start, end = (line_start(self.path, at) if at > self._read_to else at for at in (start, end))
            self._gaps.add(Gap(start, end, reason))
        except OSError as error:
            self._report_once(f"lines of a rank wait, since the gap behind them cannot be remembered: {error}")
            return None
        return start

    def _size(self) -> int:
        try:
            return self.path.lstat().st_size
        except OSError:  # none yet, or the rank has made its folder unreadable, which _chunk tells
            return 0

    def _report_once(self, text: str) -> None:
        """Log a failure, once for each reader."""
        if text not in self._troubles:
            log.error("%s", text)
        self._troubles.add(text)

    def _is_due(self, start: int, now: float, *, final: bool) -> bool:
        if self._waiting is None or self._waiting[0] != start or now < self._waiting[1]:  # or the clock was set back
            self._waiting = (start, now)
        return final or now - self._waiting[1] >= PARTIAL_LINE_SECONDS

    def _chunk(self, offset: int, size: int) -> bytes:
        try:
            with open_file(self.path) as file:
                file.seek(offset)
                return file.read(size)
        except FileNotFoundError:
            return b""
        except OSError as error:  # the rank has put something else in its place
            self._report_once(f"the output of a rank cannot be read: {error}")
            return b""


def split(buffer: bytes, offset: int, cuts: set[int], limit: int) -> tuple[list[OutputPiece], int]:
    """The whole lines at the start of `buffer`, which begins at `offset`, and how many bytes they take."""
    pieces: list[OutputPiece] = []
    position = 0
    while len(pieces) < limit and (end := _end_of_line(buffer, position, offset, cuts)) is not None:
        stop, following = end
        after_cut = offset + position in cuts
        if stop > position or not after_cut:  # the newline of a line that was cut is not a line of its own
            too_long = stop - position == MAX_LINE_BYTES == following - position
            pieces.append(OutputPiece(buffer[position:stop], offset + following, too_long, after_cut))
        elif pieces:
            pieces[-1] = pieces[-1]._replace(end=offset + following)
        position = following
    return pieces, position


def _end_of_line(buffer: bytes, start: int, offset: int, cuts: set[int]) -> tuple[int, int] | None:
    """The end of the line at `start` and the start of the next one; None if that cannot be told yet."""
    newline = buffer.find(b"\n", start, start + MAX_LINE_BYTES + 1)
    cut = min((cut - offset for cut in cuts if start < cut - offset <= min(len(buffer), start + MAX_LINE_BYTES)), default=None)
    if cut is not None and (newline < 0 or cut <= newline):
        return cut, cut
    if newline >= 0:
        return newline, newline + 1
    if len(buffer) - start > MAX_LINE_BYTES:
        return start + MAX_LINE_BYTES, start + MAX_LINE_BYTES
    return None


def log_line(seq: int, piece: OutputPiece, time: float) -> LogLine:
    """The line as a terminal shows it: a progress bar overwrites itself. Where what is overwritten was sent as a line before, a carriage
    return at the beginning tells so."""
    text = piece.content.decode("utf-8", "replace").replace("\0", "\ufffd").rstrip("\r")
    _, overwrites, visible = text.rpartition("\r")
    level, end = level_of(visible), _CUT_NOTE if piece.too_long else ""
    return LogLine(seq=seq, time=time, level=level, text=f"{overwrites if piece.continues else ''}{visible}{end}")


def level_of(text: str) -> Literal["debug", "info", "warning", "error"]:
    """The level that a line names; `info` where it names none."""
    found = _LEVEL.match(_COLOUR.sub("", text))
    return _LEVELS.get(next(filter(None, found.groups())), "error") if found else "info"
