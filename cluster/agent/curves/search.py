"""Finds files below a folder without ever reading much at once: a folder with a million files takes many looks, and no more of each second.

Folders whose contents have not changed since they were read are not read again. Links to folders are followed, each folder is entered once.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

MAX_FOLDERS = 4_000
MAX_DEPTH = 8
#: Entries of folders that one look takes in.
LOOK_ENTRIES = 20_000
#: A folder that changed so lately may change again without a newer time of change.
RECENT_SECONDS = 2.0
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})


@dataclass
class _Folder:
    depth: int
    below: list[str] = field(default_factory=list)
    changed: int | None = None  # st_mtime_ns when it was read whole; None: it is to be read again


class CurveSearch:
    """A search below a folder, in small portions. `wanted` decides by the name of each file."""

    def __init__(self, root: str, wanted: Callable[[str], bool]) -> None:
        self._root, self._wanted = root, wanted
        self._folders: dict[str, _Folder] = {}
        self._entered: set[tuple[int, int]] = set()
        self._queue: deque[str] = deque()
        self._reading: Iterator[os.DirEntry[str]] | None = None
        self._current = ""
        self.left_out = False  # there are more folders than MAX_FOLDERS
        self.passes = 0  # how often everything has been looked at

    def look(self, entries: int = LOOK_ENTRIES) -> list[str]:
        """Continue the search. Returns the files that were found; the same file may be found again."""
        found: list[str] = []
        if self._reading is None and not self._queue:
            self._begin()
        while entries > 0 and (self._reading is not None or self._queue):
            if self._reading is None:
                entries -= 1
                self._enter(self._queue.popleft())
            if self._reading is not None:
                entries -= self._read(found, entries)
        if self._reading is None and not self._queue:
            self.passes += 1
        return found

    def _begin(self) -> None:
        self._entered.clear()
        self._queue.append(self._root)
        self._folders.setdefault(self._root, _Folder(depth=0))

    def _enter(self, path: str) -> None:
        """Begin a folder: read it, or take its entries as they were the last time."""
        folder = self._folders[path]
        try:
            found = os.stat(path)
            place = (found.st_dev, found.st_ino)
            if place in self._entered:  # a link in a circle
                return
            self._entered.add(place)
            if folder.changed == found.st_mtime_ns:
                self._queue.extend(folder.below)
                return
            self._reading = os.scandir(path)
        except OSError:  # gone, or not ours to read
            self._forget(path)
            return
        self._current, folder.below = path, []
        folder.changed = found.st_mtime_ns if time.time() - found.st_mtime > RECENT_SECONDS else None

    def _read(self, found: list[str], most: int) -> int:
        """Read up to so many entries of the current folder. Returns how many were read."""
        assert self._reading is not None
        folder = self._folders[self._current]
        for count in range(most):
            try:
                entry = next(self._reading, None)
            except OSError:
                entry = None
            if entry is None:
                self._reading = None
                self._queue.extend(folder.below)
                return count + 1
            if _is_folder(entry):
                if folder.depth < MAX_DEPTH:
                    self._add(entry.path, folder)
            elif self._wanted(entry.name):
                found.append(entry.path)
        return most

    def _add(self, path: str, parent: _Folder) -> None:
        if path not in self._folders:
            if len(self._folders) >= MAX_FOLDERS:
                self.left_out = True
                return
            self._folders[path] = _Folder(parent.depth + 1)
        parent.below.append(path)

    def _forget(self, path: str) -> None:
        if path != self._root:
            del self._folders[path]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith(".") or entry.name in _SKIPPED:
        return False
    try:
        return entry.is_dir()
    except OSError:
        return False
