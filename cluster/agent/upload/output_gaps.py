"""The parts of a rank's output that are left out, so that a flood costs neither this node's disk nor the uploads of other ranks.

A rank writes straight to its file, so it is never slowed by us, and we never by it. Two things are limited. The file: its head and its
tail are kept, and the blocks between them are given back to the file system (a hole is punched: offsets stay as they are). What is sent:
so many bytes a second, after a generous start, of a rank and of its job. What is passed over is a *gap*. It is remembered in a file before it is sent, as one line
that tells how many bytes are missing, so that a new agent numbers the lines as the old one did.
"""

from __future__ import annotations

import bisect
import ctypes
import logging
import os
from pathlib import Path
from typing import Literal, NamedTuple

from paceline.monitoring.files import open_file, open_to_append, opened_in_place

DEFAULT_CAP_BYTES = 256 << 20
MIN_CAP_BYTES = 1 << 20
SEND_BYTES_PER_SECOND = 256 << 10
BURST_BYTES = 4 << 20
FULL_RATE_RANKS = 16  # ranks of a larger job share what these may send: 4 MiB a second, and 64 MiB at once
LINE_COST_BYTES = 64  # what a line costs at least
RESUME_BYTES = 256 << 10  # after a flood, lines are sent again once so much may be sent at once
FINAL_BYTES = 64 << 10  # of the end of a flood these are sent whatever was sent before
_ALIGN_BYTES = 64 << 10  # how far behind its end a gap looks for the end of a line
_PAGE_BYTES = 4096
_MAX_GAPS_BYTES = 16 << 20
_PUNCH_HOLE = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
_libc = ctypes.CDLL(None, use_errno=True)

Reason = Literal["cap", "rate"]

log = logging.getLogger(__name__)


class Gap(NamedTuple):
    """Bytes `start` to `end` of an output are left out."""

    start: int
    end: int
    reason: Reason

    def note(self, cap: int, rate: float) -> bytes:
        """The line that stands for the left-out bytes. `cap`: bytes that the output may take here; `rate`: bytes of it that are sent in a second."""
        why = {
            "cap": f"a rank's output may take {cap >> 20} MiB on this node, of which its beginning and its end are kept; "
            "write what is large to a file, or give the worker a larger --output-cap",
            "rate": f"of a rank that prints more, {rate / 1024:.3g} KiB a second are sent"
            f"{'' if rate >= SEND_BYTES_PER_SECOND else f', of its job {FULL_RATE_RANKS * SEND_BYTES_PER_SECOND >> 20} MiB'}; what is left out "
            "stays in output.log on its node for a day",
        }[self.reason]
        return f"WARNING {self.end - self.start} bytes of output are left out here: {why}".encode()


class Gaps:
    """The gaps of one output, in order and without overlap. `path`: where they are remembered, one on a line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._gaps: list[Gap] = []
        for gap in _read(path):
            self._merge(gap)

    def behind(self, offset: int) -> list[Gap]:
        """The gaps that end behind `offset`, the nearest first."""
        return self._gaps[bisect.bisect_right(self._gaps, offset, key=lambda gap: gap.end) :]

    def add(self, gap: Gap) -> None:
        """Add a gap durably. Gaps that it overlaps become one with it. Raises OSError."""
        descriptor = open_to_append(self._path, 0o600)
        try:
            os.write(descriptor, f"{gap.start} {gap.end} {gap.reason}\n".encode())
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        self._merge(gap)

    def _merge(self, gap: Gap) -> None:
        """Join overlapping gaps. Gaps that only touch stay two: the first may have been sent as a line already."""
        first = bisect.bisect_right(self._gaps, gap.start, key=lambda each: each.end)
        last = bisect.bisect_left(self._gaps, gap.end, key=lambda each: each.start)
        touched = self._gaps[first:last]
        if touched:
            gap = Gap(min(gap.start, touched[0].start), max(gap.end, touched[-1].end), gap.reason)
        self._gaps[first:last] = [gap]


def _read(path: Path) -> list[Gap]:
    """The gaps in a file that can be read: the last line may be torn."""
    try:
        with open_file(path) as file:
            lines = file.read(_MAX_GAPS_BYTES).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        log.error("the gaps of a rank's output cannot be read: %s", error)
        return []
    gaps: list[Gap] = []
    for line in lines:
        start, _, rest = line.partition(" ")
        end, _, reason = rest.partition(" ")
        if start.isdecimal() and end.isdecimal() and int(start) < int(end):
            gaps.append(Gap(int(start), int(end), "cap" if reason == "cap" else "rate"))
    return gaps


class Allowance:
    """How many bytes of one output may be sent now: SEND_BYTES_PER_SECOND since the first look, and BURST_BYTES more; of more than FULL_RATE_RANKS
    `ranks` of a job, an equal share of what so many may send.

    Output from before the first look is no flood: an agent before this one, or the coordinator, may just have been away. A clock that is set back takes
    nothing away."""

    def __init__(self, ranks: int = 1) -> None:
        share = min(1.0, FULL_RATE_RANKS / ranks)
        self.rate = SEND_BYTES_PER_SECOND * share
        self._looked_at: float | None = None
        self._given = BURST_BYTES * share
        self._spent = 0
        self._counted_to = 0

    def left(self, offset: int, kept: int, now: float) -> int:
        """`kept`: how many bytes behind `offset` are there to be sent."""
        if self._looked_at is None:
            self._looked_at, self._counted_to = now, offset
            self._given += max(0, kept)
        self._given += self.rate * max(0.0, now - self._looked_at)
        self._looked_at = now
        return int(self._given) - self._spent

    def spend(self, length: int, end: int) -> None:
        """Count a line of `length` bytes that ends at `end`: once, however often it is sent."""
        if end > self._counted_to:
            self._counted_to = end
            self._spent += max(length, LINE_COST_BYTES)


def line_start(path: Path, offset: int) -> int:
    """The first start of a line at or behind `offset`, or `offset` where none is near."""
    with open_file(path) as file:
        file.seek(offset)
        found = file.read(_ALIGN_BYTES).find(b"\n")
    return offset if found < 0 else offset + found + 1


def punch_hole(path: Path, start: int, end: int) -> None:
    """Give the whole pages between `start` and `end` back to the file system. Raises OSError, also where the file system cannot do that."""
    with opened_in_place(path) as descriptor:
        make_hole(descriptor, start, end)


def make_hole(descriptor: int, start: int, end: int) -> None:
    """Give the whole pages of an open file between `start` and `end` back. Raises OSError, also where the file system cannot do that."""
    first, last = -(-start // _PAGE_BYTES) * _PAGE_BYTES, end // _PAGE_BYTES * _PAGE_BYTES
    if last > first and _libc.fallocate(descriptor, _PUNCH_HOLE, ctypes.c_int64(first), ctypes.c_int64(last - first)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
