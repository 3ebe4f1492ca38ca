"""The files of a folder that go into a bundle."""

from __future__ import annotations

import heapq
import os
import posixpath
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from paceline.bundles.errors import BundleTooLargeError, NothingToPackError, UnpackableFileError
from paceline.bundles.ignoring import Ignoring, is_never_code, rules_above
from paceline.bundles.paths import what_is_too_long

MOST_FILES = 20_000
MOST_BYTES = 100 << 20
#: Named in a refusal, and of what was left out.
MOST_NAMED = 5
WAY_OUT = "leave out what the job does not need in .gitignore or .pacelineignore"


@dataclass(frozen=True)
class BundleFile:
    """A file in a folder. `path` is relative to the folder, with '/' between names. `link`: the target of a symbolic link."""

    path: str
    bytes: int
    executable: bool = False
    link: str | None = None


@dataclass(frozen=True)
class FolderListing:
    """The files of `folder` in the order of their names, and what was left out of it: a folder, ending in '/', stands for all in it."""

    folder: Path
    files: tuple[BundleFile, ...]
    left_out: tuple[str, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def leaves_out(self, path: str) -> bool:
        """Whether `path`, relative to the folder, is there but was left out."""
        return self._leaving_out(path) is not None

    def patterns_for(self, path: str) -> list[str]:
        """Return the lines of `.pacelineignore` by which `path`, which was left out by patterns, is sent: a folder that is left out is not looked into."""
        names, left = path.split("/"), self._leaving_out(path) or path
        folders = ["/".join(names[:depth]) + "/" for depth in range(1, len(names))]
        return [f"!{each}" for each in (*(folder for folder in folders if len(folder) >= len(left)), path)]

    def _leaving_out(self, path: str) -> str | None:
        """What was left out with `path`: itself, or a folder above it."""
        return next((left for left in self.left_out if path == left or (left.endswith("/") and path.startswith(left))), None)


def list_files(folder: Path) -> FolderListing:
    """List the files of `folder` that make up its code. Raises a BundleError that says what is in the way."""
    folder = folder.resolve()
    if not folder.is_dir():
        raise NothingToPackError(f"{folder} is {'not a folder' if folder.exists() else 'not there'}; name the folder with the job's code")
    files, left_out = list[BundleFile](), list[str]()
    for found in _walk(folder, rules_above(folder)):
        if isinstance(found, BundleFile):
            files.append(found)
        else:
            left_out.append(found)
        if len(files) > MOST_FILES:
            raise BundleTooLargeError(f"{folder} has more than {MOST_FILES:,} files, most of them in {_fullest(files)}; {WAY_OUT}")
    if not files:
        why = f"; {_few(left_out)} are left out" if left_out else ""
        raise NothingToPackError(f"{folder} has no files for a bundle{why}")
    if (size := sum(file.bytes for file in files)) > MOST_BYTES:
        raise BundleTooLargeError(f"{folder} has {size:,} bytes; the limit is {MOST_BYTES:,}. The largest: {_largest(files)}; {WAY_OUT}")
    return FolderListing(folder, tuple(sorted(files, key=lambda file: file.path)), tuple(sorted(left_out)))


def _walk(folder: Path, above: Ignoring) -> Iterator[BundleFile | str]:
    """Yield the files of a folder, and the names of what is left out."""
    waiting = [("", above)]
    while waiting:
        here, outer = waiting.pop()
        rules = outer.within(folder, here)
        for entry in _entries(folder / here):
            path = here + _as_text(entry, folder)
            is_folder = entry.is_dir(follow_symlinks=False)
            name = f"{path}/" if is_folder else path
            if is_never_code(entry) or rules.leaves_out(name):
                yield name
                continue
            if (what := what_is_too_long(path)) is not None:
                raise UnpackableFileError(f"{what}; or {WAY_OUT}")
            if is_folder:
                waiting.append((name, rules))
            elif (file := _file(folder, path, entry)) is not None:
                yield file
            else:
                yield name


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise UnpackableFileError(f"{folder} cannot be read: {error.strerror}; {WAY_OUT}") from error


def _as_text(entry: os.DirEntry[str], folder: Path) -> str:
    try:
        entry.name.encode()
    except UnicodeEncodeError:
        raise UnpackableFileError(f"{folder} has a file whose name is not UTF-8: {entry.name!r}; rename it, or {WAY_OUT}") from None
    return entry.name


def _file(folder: Path, path: str, entry: os.DirEntry[str]) -> BundleFile | None:
    """The file behind an entry; None for a socket, a pipe or a device, which are no code."""
    status = entry.stat(follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        return BundleFile(path, 0, link=_target(folder, path, entry))
    if not stat.S_ISREG(status.st_mode):
        return None
    return BundleFile(path, status.st_size, executable=bool(status.st_mode & stat.S_IXUSR))


def _target(folder: Path, path: str, entry: os.DirEntry[str]) -> str:
    """The target of a link, which must lie in the folder: on a node there is nothing else. One that leads into the folder by way of the folders
    above it, as absolute links do, becomes one within it."""
    target = os.readlink(entry.path)
    if not leads_outside(path, target):
        return target
    place = Path(os.path.realpath(entry.path))
    if not place.is_relative_to(folder):
        raise UnpackableFileError(f"{path} is a link to {target}, outside of {folder}; put a copy in its place, or {WAY_OUT}")
    return os.path.relpath(place, os.path.dirname(entry.path))


def leads_outside(path: str, target: str) -> bool:
    """Return whether the link `path`, relative to its folder, has a target outside of the folder."""
    leads_to = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return posixpath.isabs(target) or leads_to.split("/")[0] == ".."


def _fullest(files: Iterable[BundleFile]) -> str:
    counts = Counter(file.path.partition("/")[0] if "/" in file.path else "." for file in files)
    return ", ".join(f"{name} ({count:,})" for name, count in counts.most_common(MOST_NAMED))


def _largest(files: Iterable[BundleFile]) -> str:
    largest = heapq.nlargest(MOST_NAMED, files, key=lambda file: file.bytes)
    return ", ".join(f"{file.path} ({file.bytes:,})" for file in largest)


def _few(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
