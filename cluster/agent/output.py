"""A rank's output as log lines: the same numbers for the same bytes, however often and by whomever it is read.

A line ends at its newline, at MAX_LINE_BYTES, or where a pause in the middle of it made us send what there was. Only the
last kind depends on when we looked: such a *cut* is remembered (durably, before it is sent).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, NamedTuple

from monitoring.points import LogLine

MAX_LINE_BYTES = 16 << 10
PARTIAL_LINE_SECONDS = 1.0
_CHUNK_BYTES = 1 << 20
_CUT_NOTE = " … (line over 16 KiB, continued)"
_LEVEL = re.compile(r"[\[\s]*(DEBUG|WARNING|WARN|ERROR|CRITICAL|FATAL|Traceback \(most recent call last\))")
_LEVELS: dict[str, Literal["debug", "warning"]] = {"DEBUG": "debug", "WARNING": "warning", "WARN": "warning"}


class Piece(NamedTuple):
    """One line's bytes; `end` is the offset of what follows."""

    content: bytes
    end: int
    too_long: bool = False


class Read(NamedTuple):
    line: LogLine
    end: int


class OutputReader:
    """Reads lines that follow a mark. `cuts` are offsets at which a line was once ended early."""

    def __init__(self, path: Path, cuts: set[int]) -> None:
        self.path = path
        self.cuts = cuts
        self._waiting: tuple[int, float] | None = None  # offset of a partial line, and when it was first seen

    def read(self, offset: int, seq: int, limit: int, now: float, *, final: bool) -> list[Read]:
        """At most `limit` lines after `offset`, numbered from `seq` + 1. `final`: nothing more will be written."""
        buffer = self._chunk(offset)
        pieces, position = split(buffer, offset, self.cuts, limit)
        rest = len(buffer) - position
        at_end = len(buffer) < _CHUNK_BYTES and len(pieces) < limit
        if at_end and 0 < rest <= MAX_LINE_BYTES and self._is_due(offset + position, now, final=final):
            end = offset + len(buffer)
            self.cuts.add(end)
            pieces.append(Piece(buffer[position:], end))
        return [Read(log_line(seq + number, piece, now), piece.end) for number, piece in enumerate(pieces, start=1)]

    def _is_due(self, start: int, now: float, *, final: bool) -> bool:
        if self._waiting is None or self._waiting[0] != start:
            self._waiting = (start, now)
        return final or now - self._waiting[1] >= PARTIAL_LINE_SECONDS

    def _chunk(self, offset: int) -> bytes:
        try:
            with open(self.path, "rb") as file:
                file.seek(offset)
                return file.read(_CHUNK_BYTES)
        except FileNotFoundError:
            return b""


def split(buffer: bytes, offset: int, cuts: set[int], limit: int) -> tuple[list[Piece], int]:
    """The whole lines at the start of `buffer`, which begins at `offset`, and how many bytes they take."""
    pieces: list[Piece] = []
    position = 0
    while len(pieces) < limit and (end := _end_of_line(buffer, position, offset, cuts)) is not None:
        stop, following = end
        after_cut = offset + position in cuts
        if stop > position or not after_cut:  # the newline of a line that was cut is not a line of its own
            pieces.append(
                Piece(buffer[position:stop], offset + following, too_long=stop - position == MAX_LINE_BYTES == following - position)
            )
        elif pieces:
            pieces[-1] = pieces[-1]._replace(end=offset + following)
        position = following
    return pieces, position


def _end_of_line(buffer: bytes, start: int, offset: int, cuts: set[int]) -> tuple[int, int] | None:
    """Where the line at `start` stops and where the next one begins; None if that cannot be told yet."""
    newline = buffer.find(b"\n", start, start + MAX_LINE_BYTES + 1)
    cut = min((cut - offset for cut in cuts if start < cut - offset <= min(len(buffer), start + MAX_LINE_BYTES)), default=None)
    if cut is not None and (newline < 0 or cut <= newline):
        return cut, cut
    if newline >= 0:
        return newline, newline + 1
    if len(buffer) - start > MAX_LINE_BYTES:
        return start + MAX_LINE_BYTES, start + MAX_LINE_BYTES
    return None


def log_line(seq: int, piece: Piece, now: float) -> LogLine:
    text = piece.content.decode("utf-8", "replace").replace("\0", "\ufffd").rstrip("\r")
    text = text[text.rfind("\r") + 1 :]  # as a terminal shows it: a progress bar overwrites itself
    return LogLine(seq=seq, time=now, level=level_of(text), text=text + _CUT_NOTE if piece.too_long else text)


def level_of(text: str) -> Literal["debug", "info", "warning", "error"]:
    """From the word that a line begins with."""
    found = _LEVEL.match(text)
    return _LEVELS.get(found.group(1), "error") if found else "info"
