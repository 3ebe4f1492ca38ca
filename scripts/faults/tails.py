"""Files that ranks append to, read as they grow. Kept open: what is removed after it was seen is still read to its end."""

from __future__ import annotations

import glob
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from scripts.faults.history import Commit

#: Between two looks for new files: it costs more than reading those that are open. What they tell carries its own time.
LIST_SECONDS = 0.2
#: What the unread bytes of the file at this path tell, and how many of them that took: the rest is a torn tail.
Take = Callable[[Path, bytes], tuple[Sequence[Commit], int]]


@dataclass
class Tail:
    file: BinaryIO
    unread: bytes = b""


class Tails:
    """A `Source` of all files below `root` that match `pattern`, whenever they appear."""

    def __init__(self, root: Path, pattern: str, take: Take) -> None:
        self._root, self._pattern, self._take = root, pattern, take
        self._tails: dict[Path, Tail] = {}
        self._listed = -math.inf

    def read(self) -> Iterator[Commit]:
        gone: set[Path] = set()
        if time.monotonic() - self._listed >= LIST_SECONDS or not self._tails:
            gone = self._list()
        for path, tail in self._tails.items():
            tail.unread += tail.file.read()
            commits, taken = self._take(path, tail.unread)
            tail.unread = tail.unread[taken:]
            yield from commits
        for path in gone:
            self._tails.pop(path).file.close()

    def close(self) -> None:
        for tail in self._tails.values():
            tail.file.close()

    def _list(self) -> set[Path]:
        """Opens what is new; returns what has been removed, whose end is now to be read.

        Hazard: `Path.glob` raises where a folder goes while it is looked into.
        """
        self._listed = time.monotonic()
        found = {self._root / name for name in glob.glob(self._pattern, root_dir=self._root)}
        for path in sorted(found - self._tails.keys()):
            self._open(path)
        return self._tails.keys() - found

    def _open(self, path: Path) -> None:
        try:
            self._tails[path] = Tail(path.open("rb"))
        except FileNotFoundError:
            return  # removed since it was listed: it was empty, or it would have been seen before
