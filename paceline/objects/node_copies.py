"""Copies of objects on a node's disk: fetched by one process, used by all of them, checked before they get their name."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from paceline.monitoring.file_hashes import File, describe
from paceline.objects.client import ObjectClient
from paceline.objects.errors import ObjectLostError

#: How often an object is fetched whose bytes are not what they should be: damage on the way is mended by another try, damage in the store is not.
ATTEMPTS = 2
LOCK = ".lock"
IN_USE = ".in-use"
#: Descriptors of the locks of copies that this process uses, for its life: their files may be mapped.
_held: dict[Path, int] = {}


@contextlib.contextmanager
def alone_on_node(lock: Path) -> Iterator[None]:
    """Let one process of this node at a time into the block. The lock ends with the process that holds it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def fetch(client: ObjectClient, name: str, path: Path, expected: File) -> None:
    """Have the object `name` at `path`, fetched by whichever process of this node comes first; the others wait for it.

    Raises ObjectLostError for an object that is not `expected`, and ObjectStoreError.
    """
    with alone_on_node(path.with_name(f".{path.name}{LOCK}")):
        if path.exists():
            return
        scratch = path.with_name(f".{path.name}.part")
        try:
            found = File(0, "")
            for _ in range(ATTEMPTS):
                client.download(name, scratch)
                found = describe(scratch)
                if found == expected:
                    os.replace(scratch, path)
                    return
        finally:
            scratch.unlink(missing_ok=True)
    raise ObjectLostError(
        f"{client.location / name}: {found.bytes} bytes that do not match the SHA-256 and the {expected.bytes} bytes expected"
    )


def hold(folder: Path) -> None:
    """Keep the copy in a folder from being evicted as long as this process lives."""
    if folder not in _held:
        descriptor = os.open(folder / IN_USE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _held[folder] = descriptor


def evict(folder: Path, most_bytes: int, last: str) -> list[str]:
    """Delete the copies that were used longest ago until the others have at most `most_bytes` together. Copies in use are never deleted, and of
    one that is, its file `last` goes first: a copy without it is not whole. Returns the names of those deleted."""
    copies = sorted((each for each in folder.iterdir() if each.is_dir()), key=lambda each: each.stat().st_mtime)
    sizes = {copy: sum(path.stat().st_size for path in copy.iterdir() if path.is_file()) for copy in copies}
    kept, gone = sum(sizes.values()), []
    for copy in copies:
        if kept <= most_bytes:
            break
        if _remove_unused(copy, last):
            kept -= sizes[copy]
            gone.append(copy.name)
    return gone


def _remove_unused(copy: Path, last: str) -> bool:
    """Delete a copy that no process holds."""
    if copy in _held:
        return False
    with contextlib.suppress(OSError), open(copy / IN_USE, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (copy / last).unlink(missing_ok=True)
        shutil.rmtree(copy)
        return True
    return False
