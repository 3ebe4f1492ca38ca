"""The messages between an agent and the process that reads the curves of one job's scripts on this node: one JSON object a line.

agent -> reader:  Watch, all of it again whenever something in it changes; the end of the pipe is the end of the reader
reader -> agent:  RankRead, once for each rank that has ended
"""

from __future__ import annotations

import msgspec


class WatchedRank(msgspec.Struct, frozen=True):
    rank: int
    folder: str
    pid: int | None = None
    exited: bool = False


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks of one generation of a script job on this node."""

    ranks: tuple[WatchedRank, ...]
    directory: str | None  # the script's working directory; None: each rank's own folder
    log_folder: str
    started: float  # when this generation came to this node, by the clock of its files
    neighbours: tuple[str, ...] = ()  # working directories of other jobs' scripts on this node, since this generation began


class RankRead(msgspec.Struct, frozen=True):
    """The reader has read all files of this rank, which has ended."""

    rank: int


watch_decoder = msgspec.json.Decoder(Watch)
read_decoder = msgspec.json.Decoder(RankRead)
