"""`python -m paceline.cluster.agent.curves.main`: reads the curves of one job's scripts on this node, in a process of its own.

A bad file, a stuck file system or too little memory can end this process, and neither the agent nor a rank. The process ends with its
standard input.
"""

from __future__ import annotations

import os
import resource
import select
import sys

from paceline.cluster.agent.curves.link import RankRead, Watch, watch_decoder
from paceline.cluster.agent.curves.reader import CurveReader
from paceline.cluster.agent.processes import offer_to_memory_killer
from paceline.monitoring.lines import LineBuffer, encode_line

POLL_SECONDS = 1.0
MAX_MEMORY_BYTES = 1 << 30
LESS_URGENT = 5  # than the ranks
MEMORY_SCORE = 400  # for the kernel's out-of-memory killer: before the agent and its spawner, after the ranks


class Lines:
    """Complete lines of standard input, read without waiting for the rest of an incomplete one."""

    def __init__(self) -> None:
        self._begun = LineBuffer()
        self.ended = False

    def read(self, timeout: float) -> list[bytes]:
        ready, _, _ = select.select([0], [], [], timeout)
        if not ready:
            return []
        piece = os.read(0, 1 << 20)
        self.ended = not piece
        return self._begun.take(piece)


def main() -> int:
    os.nice(LESS_URGENT)
    offer_to_memory_killer(MEMORY_SCORE)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    lines, reader, read = Lines(), None, set[int]()
    while not lines.ended:
        for line in lines.read(POLL_SECONDS)[-1:]:  # the newest says it all
            watch = watch_decoder.decode(line)
            if reader is None:
                reader = CurveReader(watch)
            reader.update(watch)
            finish(reader, watch, read)
        if reader is not None:
            poll(reader)
    return 0


def finish(reader: CurveReader, watch: Watch, read: set[int]) -> None:
    """Read all that the ranks which have ended left in their files, and report each of these ranks as read."""
    ended = {rank.rank for rank in watch.ranks if rank.exited} - read
    if not ended:
        return
    try:
        reader.finish()
    except OSError as error:
        print(f"curves: {error}", file=sys.stderr)
    for rank in sorted(ended):
        os.write(1, encode_line(RankRead(rank)))
    read |= ended


def poll(reader: CurveReader) -> None:
    try:
        reader.poll()
    except OSError as error:  # a full disk: what was read is kept and tried again
        print(f"curves: {error}; trying again", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
