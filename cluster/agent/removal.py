"""Removing a folder with untrusted contents: of any depth, with unwritable folders, with links to elsewhere."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def remove_tree(path: Path) -> None:
    """Remove a folder with all that is in it; read-only folders, too, if they are ours. Links are removed and never followed, and
    every name is looked up in an open folder, so that putting a link in a folder's place leads nowhere else. A folder within a folder
    is moved up first: however deep it lies, neither its path nor the call stack gets long. What is mounted in it is not entered: that cannot be
    moved. Raises the first OSError of what cannot be removed."""
    with open_own(str(path)) as top:
        empty_folder(top)
    path.rmdir()


def empty_folder(top: int) -> None:
    """Remove all that is in an open folder, as `remove_tree` does."""
    if os.geteuid() == os.fstat(top).st_uid != 0:
        os.fchmod(top, stat.S_IRWXU)
    waiting = os.listdir(top)
    while waiting:
        name = waiting.pop()
        if _is_folder(name, top):
            name = _moved(name, top, top)
            waiting += _empty(name, top)
            os.rmdir(name, dir_fd=top)
        else:
            os.unlink(name, dir_fd=top)


def _empty(name: str, top: int) -> list[str]:
    """Remove the files in a folder in `top`, and move the folders in it up into `top`: their names there."""
    moved = list[str]()
    with open_own(name, top) as folder:
        for inner in os.listdir(folder):
            if _is_folder(inner, folder):
                moved.append(_moved(inner, folder, top))
            else:
                os.unlink(inner, dir_fd=folder)
    return moved


def _moved(name: str, folder: int, top: int) -> str:
    """Move a folder in an open `folder` into `top`, and return its name there. Raises OSError where something is mounted on it."""
    _make_ours(name, folder)
    moved = uuid.uuid4().hex
    try:
        os.rename(name, moved, src_dir_fd=folder, dst_dir_fd=top)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise OSError(error.errno, "a file system is mounted there, whose files are not removed", name) from error
        raise
    return moved


@contextmanager
def open_own(name: str, parent: int | None = None) -> Iterator[int]:
    """Open a folder that is to go, and make it writable first if it is ours. A link is not followed."""
    _make_ours(name, parent)
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        yield folder
    finally:
        os.close(folder)


def _is_folder(name: str, parent: int) -> bool:
    return stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode)


def _make_ours(name: str, parent: int | None) -> None:
    """Make a folder writable. Root needs no mode (and must change none: chmod follows links). The mode of another user's folder stays;
    opening it gives the reason."""
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if os.geteuid() == status.st_uid != 0 and stat.S_ISDIR(status.st_mode):
        os.chmod(name, stat.S_IRWXU, dir_fd=parent)
