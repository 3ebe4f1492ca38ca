"""Data sets that a node fetches for itself, once: the first rank that needs one holds a lock, checks what came, and leaves it to all others."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.training.errors import InvalidInputError

#: Without a byte from the server.
SILENCE_SECONDS = 30.0
#: Between the first and the last of the ranks that start together on a node.
SAME_START_SECONDS = 10.0
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


def fetch(remotes: Sequence[Remote], folder: Path, way_out: str, now: Callable[[], float] = time.time) -> list[Path]:
    """Return the files in `folder`, fetched where they are not there yet.

    Raises InvalidInputError, which ends with `way_out`, if a file cannot be fetched or is not what was published; without trying where another rank
    of the node has just failed. Ranks that start together so decide alike, also where the network comes and goes, and none waits for another's time-out
    and then for its own.
    """
    found, lock = [folder / remote.name for remote in remotes], folder / ".lock"
    if not all(path.exists() for path in found):
        with alone_on_node(lock):
            if (problem := recent_failure(lock, now())) is not None:
                raise InvalidInputError(problem)
            try:
                for remote, path in zip(remotes, found, strict=True):
                    if not path.exists():  # another rank may have fetched it meanwhile
                        fetch_one(remote, path, way_out)
            except InvalidInputError as error:
                lock.write_text(json.dumps({"at": now(), "problem": str(error)}))
                raise
    return found


def recent_failure(lock: Path, now: float) -> str | None:
    """Return what a rank has left in the lock's file that failed within SAME_START_SECONDS; None: there is nothing, or it is older."""
    try:
        left = json.loads(lock.read_text())
    except ValueError:  # empty; or half written by a rank that was killed: nothing is known of its failure
        return None
    return str(left["problem"]) if 0 <= now - left["at"] <= SAME_START_SECONDS else None


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
