"""Copies of objects on a node's disk: fetched by one process, used by all of them, checked before they get their name."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from paceline.monitoring.sealed import File, describe
from paceline.objects.client import ObjectClient
from paceline.objects.errors import ObjectLostError

#: How often an object is fetched whose bytes are not what they should be: damage on the way is mended by another try, damage in the store is not.
ATTEMPTS = 2
LOCK = ".lock"


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
