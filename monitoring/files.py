"""Small files that must be whole or absent, whatever dies while they are written."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Self

_READ_BYTES = 1 << 20
#: How long a writer waits for another one of the same file, and how often it looks.
LOCK_SECONDS = 1.0
_LOCK_POLL_SECONDS = 0.002
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class UnfitFileError(OSError):
    """A path leads to something other than a plain file, or to a file that is too large for its purpose."""


def write_durably(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replace `path` with `content`: written beside it, fsynced, renamed, and the folder fsynced. A failure leaves nothing beside.

    The name beside cannot be guessed: whoever else may write into the folder could put a folder in its place, and nothing would be written."""
    beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(beside, "wb", opener=lambda name, flags: os.open(name, flags | os.O_EXCL | os.O_NOFOLLOW, mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):  # a disk that refuses this too has said so already
            beside.unlink()
        raise
    sync_folder(path.parent)


class Appender:
    """Appends to a file, each time all of it or nothing: what a full disk took a part of is cut off again, so it can be tried anew.

    Raises UnfitFileError, or another OSError, where `path` is no plain file."""

    def __init__(self, path: Path) -> None:
        self._descriptor = open_to_append(path)

    def read(self, start: int = 0, most: int | None = None) -> bytes:
        """Return the content from byte `start` to the end, or at least the first `most` bytes of it."""
        content = bytearray()
        while most is None or len(content) < most:
            if not (piece := os.pread(self._descriptor, _READ_BYTES, start + len(content))):
                break
            content += piece
        return bytes(content)

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the file's exclusive lock within the block. Raises BlockingIOError after LOCK_SECONDS. Without effect on a file system that
        has no locks."""
        deadline, is_over = time.monotonic() + LOCK_SECONDS, False
        while not try_lock(self._descriptor):
            if is_over:
                raise BlockingIOError(errno.EAGAIN, f"another process has been writing for {LOCK_SECONDS:g} s")
            is_over = time.monotonic() > deadline  # where the machine stood still, so did whoever writes: it is looked once more
            time.sleep(_LOCK_POLL_SECONDS)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # no locks on this file system
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cut(self, end: int) -> None:
        """Truncate the file to its first `end` bytes."""
        os.ftruncate(self._descriptor, end)

    def append(self, content: bytes) -> None:
        written = 0
        try:
            while written < len(content):
                written += os.write(self._descriptor, memoryview(content)[written:])
        except OSError:
            if written:
                self.cut(os.lseek(self._descriptor, 0, os.SEEK_CUR) - written)
            raise

    def sync(self) -> None:
        """Make what was appended survive a power cut."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the file. A later `append` raises OSError."""
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Take the exclusive lock of an open file, until it is closed. False: another process holds it. True on a file system that has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def open_to_append(path: Path, mode: int = 0o666) -> int:
    """Open a plain file for reading and appending, and create it if it is not there: its descriptor. Symbolic links are not followed, and a pipe is never
    waited for. Raises UnfitFileError, or another OSError."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link or a socket
            raise UnfitFileError(f"{path}: {error.strerror}") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnfitFileError(f"{path} is no plain file")
    os.set_blocking(descriptor, True)  # for the programs that inherit it
    return descriptor


@contextlib.contextmanager
def opened_in_place(path: Path) -> Iterator[int]:
    """Open a plain file, which is there, to change bytes in the middle of it: its descriptor. Links are not followed, and a pipe is never waited for.
    Raises UnfitFileError, or another OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnfitFileError(f"{path} is no plain file")
        yield descriptor
    finally:
        os.close(descriptor)


def ends_at(found: os.stat_result | None, offset: int) -> bool:
    """Whether a plain file, of which these are the facts, has nothing behind byte `offset`. False where there are none, or where it is anything
    else: what opens it tells why it cannot be read."""
    return found is not None and stat.S_ISREG(found.st_mode) and found.st_size <= offset


def open_file(path: Path, owner: int | None = None, dir_fd: int | None = None) -> BinaryIO:
    """Open a plain file that another process has left, for reading. Symbolic links are not followed, and a pipe is never waited for.

    `owner` is the user id that the file must have; None allows any. `dir_fd` is the path's folder, opened: the file is looked up in that
    one, whatever has taken its place meanwhile. Raises UnfitFileError, or another OSError.
    """
    name = path if dir_fd is None else path.name
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EACCES):  # a link, or made unreadable: that will stay so
            raise UnfitFileError(f"{path}: {error.strerror}") from error
        raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or owner not in (None, found.st_uid):
        os.close(descriptor)
        raise UnfitFileError(f"{path} is no plain file" if owner is None else f"{path} is no plain file of user {owner}")
    return open(descriptor, "rb")


def read_file(path: Path, limit: int, owner: int | None = None, dir_fd: int | None = None) -> bytes:
    """Return the content of a small file that another process has left; see `open_file`. Raises UnfitFileError over `limit` bytes, or
    another OSError."""
    with open_file(path, owner, dir_fd) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise UnfitFileError(f"{path} has over {limit} bytes")
    return content


def make_folders(path: Path) -> None:
    """Create the folder `path` and its missing parents; they survive a power cut."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def make_private(folder: Path) -> None:
    """Create a folder that only its owner can enter, or make one so that is ours. One that many share (sticky, as /tmp) is left as it is."""
    folder.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX:
        folder.chmod(stat.S_IRWXU)


def sync_folder(path: Path) -> None:
    """Make a rename or a removal inside `path` survive a power cut."""
    _sync(path, os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Make the content, written by another process, survive a power cut."""
    _sync(path, 0)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
