"""Data sets that a node fetches for itself, once: the first rank that needs one holds a lock, checks what came, and leaves it to all others."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.training.errors import InvalidInputError

#: Without a byte from the server.
SILENCE_SECONDS = 30.0
PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Remote:
    """A published file. `md5` is what its publisher gives: against damage, not against an attacker."""

    url: str
    md5: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


@contextlib.contextmanager
def alone_on_node(lock: Path) -> Iterator[None]:
    """Let one process of this node at a time into the block. The lock ends with the process that holds it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def fetch(remotes: Sequence[Remote], folder: Path, way_out: str) -> list[Path]:
    """Return the files in `folder`, fetched where they are not there yet.

    Raises InvalidInputError, which ends with `way_out`, if a file cannot be fetched or is not what was published.
    """
    found = [folder / remote.name for remote in remotes]
    if not all(path.exists() for path in found):
        with alone_on_node(folder / ".lock"):
            for remote, path in zip(remotes, found, strict=True):
                if not path.exists():  # another rank may have fetched it meanwhile
                    fetch_one(remote, path, way_out)
    return found


def fetch_one(remote: Remote, path: Path, way_out: str) -> None:
    """Write the file under its name only once it is whole."""
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        digest = download(remote.url, scratch)
        if digest != remote.md5:
            raise InvalidInputError(f"{remote.url} came with MD5 {digest}, not {remote.md5}: it is damaged or another file; {way_out}")
        scratch.rename(path)
    except OSError as error:
        raise InvalidInputError(f"{remote.url} cannot be fetched ({error}); {way_out}") from error
    finally:
        scratch.unlink(missing_ok=True)


def download(url: str, target: Path) -> str:
    """Write what `url` gives to `target`, and return its MD5."""
    digest = hashlib.md5(usedforsecurity=False)
    with urllib.request.urlopen(url, timeout=SILENCE_SECONDS) as source, open(target, "wb") as file:
        while piece := source.read(PIECE_BYTES):
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()
