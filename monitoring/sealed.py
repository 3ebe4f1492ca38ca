"""Files that say what they should be: size and hash of a file, and JSON documents that carry a hash of themselves."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import msgspec

_SEALED = re.compile(rb'(?P<body>.+),\n  "sha256": "(?P<sha256>[0-9a-f]{64})"\n\}', re.DOTALL)


class File(msgspec.Struct, frozen=True):
    bytes: int
    sha256: str


def describe(path: Path) -> File:
    with open(path, "rb") as file:
        return File(bytes=os.fstat(file.fileno()).st_size, sha256=hashlib.file_digest(file, "sha256").hexdigest())


def sealed(document: bytes) -> bytes:
    """A JSON object with one member more, the SHA-256 of all that stands before it: a document that vouches for files must be beyond doubt."""
    body = document.removesuffix(b"\n}")
    return b'%b,\n  "sha256": "%b"\n}' % (body, hashlib.sha256(body).hexdigest().encode())


def is_sealed(content: bytes) -> bool:
    found = _SEALED.fullmatch(content)
    return found is not None and hashlib.sha256(found["body"]).hexdigest().encode() == found["sha256"]
