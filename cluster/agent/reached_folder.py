"""Reaches a folder by its path, one name after the other, and says whose links led there.

An agent that is root and runs its ranks as another user may delete what these ranks may not, so a link in a path is somebody's word. Names
are looked up in open folders: what is put in a folder's place afterwards leads nowhere else.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

#: As the kernel.
MOST_LINKS = 40


@dataclass(frozen=True)
class ReachedFolder:
    """An open folder. `link_owners`: the users, except root, whose links its path goes through; empty where links are trusted."""

    descriptor: int
    link_owners: frozenset[int]

    def require_leads_to(self, descriptor: int) -> None:
        """Raise PermissionError unless an open folder in this one belongs to everybody whose links led here: users may do what they like with their
        own."""
        if not self.link_owners <= {os.fstat(descriptor).st_uid}:
            raise PermissionError(errno.EPERM, "its path goes through a symbolic link of another user than its owner")


@contextmanager
def reach(path: Path, *, distrusts_links: bool) -> Iterator[ReachedFolder]:
    """Open a folder by its absolute path. Raises OSError where there is none."""
    here, owners = _walk(path)
    try:
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
    finally:
        os.close(here)
    try:
        yield ReachedFolder(folder, frozenset(owners - {0} if distrusts_links else ()))
    finally:
        os.close(folder)


def _walk(path: Path) -> tuple[int, set[int]]:
    """The last folder of a path as a descriptor for lookups, and the owners of the links on the way."""
    owners, links = set[int](), 0
    waiting = list(reversed(path.parts[1:]))
    here = _enter("/")
    try:
        while waiting:
            name = waiting.pop()
            try:
                following = _enter(name, here)
            except NotADirectoryError:
                target, owner = _read_link(name, here)
                owners.add(owner)
                links += 1
                if links > MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None
                following = _enter("/" if target.is_absolute() else ".", here)
                waiting += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            os.close(here)
            here = following
    except BaseException:
        os.close(here)
        raise
    return here, owners


def _enter(name: str, parent: int | None = None) -> int:
    """Open a folder that is no link. `O_DIRECTORY` is what an automounted one is mounted for."""
    return os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)


def _read_link(name: str, parent: int) -> tuple[Path, int]:
    """Where a link leads, and its owner. Raises NotADirectoryError for anything else."""
    link = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=parent)
    try:
        status = os.fstat(link)
        if not stat.S_ISLNK(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
        return Path(os.readlink("", dir_fd=link)), status.st_uid
    finally:
        os.close(link)
