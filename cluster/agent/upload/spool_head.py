"""Gives up the head of a rank's spool: records that the coordinator has acknowledged, and that it could ask for again only if it were restored from
an older copy.

The mark that says so is durable before the bytes go back to the file system, so whoever reads the spool meanwhile finds records there, or the mark.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from paceline.cluster.agent.upload.output_gaps import make_hole
from paceline.monitoring.files import open_file, opened_in_place, try_lock
from paceline.monitoring.spool import COUNTED_BYTES, START_BYTES, SpoolStart, parse, read_start

#: So much of each spool is kept, of what is acknowledged.
DEFAULT_KEPT_BYTES = 256 << 20
MIN_KEPT_BYTES = 1 << 20
#: So much is given up at once: more than one upload can acknowledge.
GIVEN_UP_BYTES = COUNTED_BYTES
_BEYOND_BYTES = 1 << 30


def start_at(path: Path) -> SpoolStart:
    """The start of the spool at `path`; that of a whole one where it cannot be read, which is told where it is read."""
    try:
        with open_file(path) as file:
            return read_start(file.fileno())
    except OSError:
        return SpoolStart()


def give_up_head(path: Path, before: int) -> SpoolStart:
    """Give up the records that end before byte `before`, at most COUNTED_BYTES of them at once, and return what the spool begins with then. A spool
    that another process is writing just now stays as it is. Raises OSError, with nothing given up, also where the file system makes no holes."""
    with opened_in_place(path) as descriptor:
        start, size = read_start(descriptor), os.fstat(descriptor).st_size
        records, taken = parse(os.pread(descriptor, max(0, min(COUNTED_BYTES, before - start.offset)), start.offset))
        given_up = SpoolStart(start.records + len(records), start.offset + taken)
        if given_up == start or given_up.offset < START_BYTES or not try_lock(descriptor):
            return start
        make_hole(descriptor, size + _BEYOND_BYTES, size + 2 * _BEYOND_BYTES)  # frees nothing: it fails where no holes can be made
        _write_mark(descriptor, given_up)
        make_hole(descriptor, START_BYTES, given_up.offset)
    return given_up


def _write_mark(descriptor: int, start: SpoolStart) -> None:
    mark = start.mark()
    if os.pwrite(descriptor, mark, 0) != len(mark):
        raise OSError(errno.EIO, "the mark of a spool's start was not written as a whole")
    os.fdatasync(descriptor)
