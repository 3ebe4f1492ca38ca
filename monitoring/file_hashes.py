"""Files that say what they should be: size and hash of a file, and JSON documents that carry a hash of themselves."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

import msgspec

from paceline.monitoring.files import UnfitFileError

_WITH_OWN_HASH = re.compile(rb'(?P<body>.+),\n  "sha256": "(?P<sha256>[0-9a-f]{64})"\n\}', re.DOTALL)


class File(msgspec.Struct, frozen=True):
    bytes: int
    sha256: str


def describe(path: Path) -> File:
    """Hash a file. Raises UnfitFileError for a pipe or a device, which would never end, or another OSError."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise UnfitFileError(f"{path} is no plain file")
        return File(bytes=found.st_size, sha256=hashlib.file_digest(file, "sha256").hexdigest())


def with_own_hash(document: bytes) -> bytes:
    """Return a JSON object with one member more, the SHA-256 of all that stands before it: a document that vouches for files must be
    beyond doubt."""
    body = document.removesuffix(b"\n}")
    return b'%b,\n  "sha256": "%b"\n}' % (body, hashlib.sha256(body).hexdigest().encode())


def has_own_hash(content: bytes) -> bool:
    """Whether a document is as `with_own_hash` made it."""
    found = _WITH_OWN_HASH.fullmatch(content)
    return found is not None and hashlib.sha256(found["body"]).hexdigest().encode() == found["sha256"]
