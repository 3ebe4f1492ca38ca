"""What a rank has left in its $PACELINE_ARTIFACTS: found by looking again and again, and remembered once it is with the coordinator.

The folder belongs to code that nobody has checked. Links are not followed, and nothing but plain files is opened. A file counts as written
once two looks in a row find it unchanged.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

from paceline.monitoring.artifact_files import MAX_DEPTH, MAX_JOB_FILES, UNFINISHED_PREFIX, printable
from paceline.monitoring.files import Appender, UnfitFileError, read_file

#: One more than a job may have, so that the coordinator tells of the limit; the others are not even looked at.
MOST_FILES = MAX_JOB_FILES + 1
MOST_ENTRIES = 10 * MAX_JOB_FILES
JOURNAL_SUFFIX = ".sent"
#: More than the notes of all files of a job, each changed some times.
MOST_JOURNAL_BYTES = 64 << 20

log = logging.getLogger(__name__)


class FileVersion(NamedTuple):
    """The facts that tell two versions of a file apart without reading it."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, found: os.stat_result) -> Self:
        return cls(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


@dataclass
class LeftFiles:
    """The files of one process. `handled`: the version of each file that needs nothing more, by its path in the folder; `refused`: those
    of them that the coordinator does not keep."""

    folder: Path
    handled: dict[str, FileVersion] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    _last: dict[str, FileVersion] = field(default_factory=dict)
    _noting: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @classmethod
    def at(cls, folder: Path) -> Self:
        """The files in a folder, with what an earlier agent has noted of them."""
        files = cls(folder)
        files._recall()
        return files

    @property
    def journal(self) -> Path:
        return self.folder.with_name(self.folder.name + JOURNAL_SUFFIX)

    @property
    def place(self) -> tuple[str, int, int]:
        """The job, and the generation and rank in which the process started: jobs/<job>/files/g<generation>.rank<rank>."""
        generation, _, rank = self.folder.name.partition(".")
        return self.folder.parents[1].name, int(generation.removeprefix("g")), int(rank.removeprefix("rank"))

    @property
    def owner(self) -> int | None:
        """The user with whose rights root opens the files. None where the agent is not root."""
        return self.folder.stat().st_uid if os.geteuid() == 0 else None

    def path_in_job(self, name: str) -> str:
        return f"rank{self.place[2]}/{printable(name)}"

    def look(self, *, at_rest: bool = False) -> dict[str, FileVersion]:
        """The files to send now, by their path in the folder. `at_rest`: nothing writes to them any more, so one look is enough."""
        found = dict(walk(self.folder))
        ready = {
            name: version
            for name, version in found.items()
            if self.handled.get(name) != version and (at_rest or self._last.get(name) == version)
        }
        self._last = found
        return ready

    @property
    def is_finished(self) -> bool:
        """Whether the last look has found nothing that is still to be sent."""
        return all(self.handled.get(name) == version for name, version in self._last.items())

    @property
    def last_change(self) -> float:
        """When one of the files that the last look has found was changed, or something was noted of one."""
        noted = [path.stat().st_mtime for path in (self.folder, self.journal) if path.exists()]
        return max([*noted, *(version.ctime_ns / 1e9 for version in self._last.values())])

    def note(self, name: str, version: FileVersion, *, kept: bool) -> None:
        """Note that this version needs nothing more, for the next agent too. Should the note be lost, the file is offered again, and is
        known there."""
        self._remember(name, version, kept=kept)
        try:
            with Appender(self.journal) as journal:
                journal.append(f"{json.dumps([name, *version, kept])}\n".encode())
        except (UnfitFileError, IsADirectoryError) as error:  # the rank has put something else in its place
            log.debug("what is sent of %s is not noted: %s", self.folder, error)

    def withhold(self, name: str, version: FileVersion, tell: Callable[[], None]) -> None:
        """Tell that this version is not to leave the node, and note it. Looks that find it at the same time are in threads of their own: one of them
        tells."""
        with self._noting:
            if self.handled.get(name) != version:
                tell()  # first: who finds it handled relies on that
                self.note(name, version, kept=True)

    def _remember(self, name: str, version: FileVersion, *, kept: bool) -> None:
        self.handled[name] = version
        (self.refused.discard if kept else self.refused.add)(name)

    def _recall(self) -> None:
        try:
            noted = read_file(self.journal, MOST_JOURNAL_BYTES)
        except FileNotFoundError:
            return
        except UnfitFileError as error:
            log.warning("what was sent of %s is offered again: %s", self.folder, error)
            return
        for line in noted.decode("ascii", "replace").splitlines():
            try:
                name, size, mtime, ctime, inode, kept = json.loads(line)
            except (ValueError, TypeError, RecursionError):  # the last line of an agent that was killed, or what the rank has put there
                continue
            if isinstance(name, str):
                self._remember(name, FileVersion(size, mtime, ctime, inode), kept=bool(kept))


def walk(folder: Path) -> Iterator[tuple[str, FileVersion]]:
    """The plain files below a folder, by their path in it; what is unfinished, too deep or too much is left out."""
    waiting, entries, files = [("", 0)], 0, 0
    while waiting:
        below, depth = waiting.pop()
        try:
            with os.scandir(folder / below) as found:
                for entry in found:
                    entries += 1
                    if entries > MOST_ENTRIES or files >= MOST_FILES:
                        return
                    name = f"{below}/{entry.name}" if below else entry.name
                    if entry.name.startswith(UNFINISHED_PREFIX):
                        continue
                    about = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(about.st_mode):
                        if depth <= MAX_DEPTH:  # a file in a folder that is too deep is refused by name
                            waiting.append((name, depth + 1))
                    elif stat.S_ISREG(about.st_mode):
                        files += 1
                        yield name, FileVersion.of(about)
        except OSError as error:  # removed, or made unreadable, while we look
            log.debug("%s is left out: %s", folder / below, error)
